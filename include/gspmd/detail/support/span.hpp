// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// The subset of std::span that the library needs. std::span checks a dozen concepts for each container type, which
/// takes a tenth of a program's compile time. This type requires only `data()` and `size()`, so it and std::span
/// convert to each other.
template <class T>
class span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  constexpr span() = default;
  constexpr span(T* first, std::size_t count) : begin_(first), size_(count) {}
  constexpr span(T* first, T* last) : begin_(first), size_(static_cast<std::size_t>(last - first)) {}
  template <std::size_t N>
  constexpr span(T (&array)[N]) : begin_(array), size_(N) {}
  template <class Container, class = std::enable_if_t<std::is_same_v<
                                 const value_type, const std::remove_pointer_t<decltype(std::declval<Container&>().data())>>>>
  constexpr span(Container&& container) : begin_(container.data()), size_(static_cast<std::size_t>(container.size())) {}

  [[nodiscard]] constexpr T* data() const { return begin_; }
  [[nodiscard]] constexpr std::size_t size() const { return size_; }
  [[nodiscard]] constexpr bool empty() const { return size_ == 0; }
  [[nodiscard]] constexpr T* begin() const { return begin_; }
  [[nodiscard]] constexpr T* end() const { return begin_ + size_; }
  [[nodiscard]] constexpr T& operator[](std::size_t i) const { return begin_[i]; }
  [[nodiscard]] constexpr T& front() const { return begin_[0]; }
  [[nodiscard]] constexpr T& back() const { return begin_[size_ - 1]; }
  [[nodiscard]] constexpr span first(std::size_t count) const { return {begin_, count}; }
  [[nodiscard]] constexpr span subspan(std::size_t from) const { return {begin_ + from, size_ - from}; }
  [[nodiscard]] constexpr span subspan(std::size_t from, std::size_t count) const { return {begin_ + from, count}; }

 private:
  T* begin_ = nullptr;
  std::size_t size_ = 0;
};
template <class Container>
span(Container&&) -> span<std::remove_pointer_t<decltype(std::declval<Container&>().data())>>;
template <class T, std::size_t N>
span(T (&)[N]) -> span<T>;
template <class T>
span(T*, std::size_t) -> span<T>;

}  // namespace gspmd::detail
