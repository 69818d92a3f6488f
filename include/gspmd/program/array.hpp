// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/no_memory.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/row_major.hpp"

namespace gspmd {
namespace detail {

/// Returns the number of elements of a tensor to allocate. Throws gspmd::error if the shape is invalid or the size too
/// large.
template <class = once>
std::int64_t checked_elements(const extents& shape, std::size_t elem_bytes);

template <class = once>
[[gnu::cold]] std::string array_text(const extents& shape);

/// Throws gspmd::error: an element has `count` indices and the array has another number of dims.
template <class = once>
[[noreturn, gnu::cold]] void refuse_indices(const extents& shape, std::size_t count);

/// gspmd/program/print.hpp specialises this for every type.
template <class T>
struct array_printer {
  static constexpr bool is_included = false;
};

}  // namespace detail

/// A whole (global) tensor in host memory, dense and row-major. `run` takes and returns arrays.
///
/// An array that was moved from has no elements.
///
/// **Errors.** Constructors throw gspmd::error if an extent is negative, or if the array has more than 32 dims or 2^60
/// bytes. They also throw it if there is not enough memory.
/// **Threads.** Any number of threads may read, or one thread may write.
/// **Example.** array<float> w({64, 256});   w(0, 1) = 1;   array<float> x(program.input(0).global_shape());
template <class T>
class array {
 public:
  array() = default;
  /// Constructs an array of zeros, as the next two constructors do.
  explicit array(const detail::extents& shape)
      : shape_(shape), size_(detail::checked_elements(shape, sizeof(T))), data_(allocate<true>()) {}
  array(std::initializer_list<std::int64_t> shape) : array(to_extents({shape.begin(), shape.size()})) {}
  /// Takes a vector, an array or a span of extents.
  explicit array(detail::span<const std::int64_t> shape) : array(to_extents(shape)) {}
  array(const array& other) : shape_(other.shape_), size_(other.size_), data_(allocate<false>()) {
    std::copy_n(other.data(), size_, data());
  }
  array(array&& other) noexcept
      : shape_(std::exchange(other.shape_, {})), size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
  array& operator=(array other) noexcept {
    shape_ = other.shape_;
    size_ = other.size_;
    data_ = std::move(other.data_);
    return *this;
  }

  [[nodiscard]] const detail::extents& shape() const { return shape_; }
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  /// Returns element i in row-major order, whatever the number of dims.
  [[nodiscard]] T& operator[](std::int64_t i) { return data_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const T& operator[](std::int64_t i) const { return data_[static_cast<std::size_t>(i)]; }
  /// Returns the element with these indices, one for each dim. In C++23, `a[i, j]` is the same.
  ///
  /// **Errors.** Throws gspmd::error if the number of indices is not the number of dims. Their values are not checked.
  template <std::integral... Index>
  [[nodiscard]] T& operator()(Index... index) {
    return data_[offset_of(index...)];
  }
  template <std::integral... Index>
  [[nodiscard]] const T& operator()(Index... index) const {
    return data_[offset_of(index...)];
  }
#ifdef __cpp_multidimensional_subscript
  template <std::integral... Index>
    requires(sizeof...(Index) > 1)
  [[nodiscard]] T& operator[](Index... index) {
    return data_[offset_of(index...)];
  }
  template <std::integral... Index>
    requires(sizeof...(Index) > 1)
  [[nodiscard]] const T& operator[](Index... index) const {
    return data_[offset_of(index...)];
  }
#endif
  [[nodiscard]] T* begin() { return data(); }
  [[nodiscard]] T* end() { return data() + size_; }
  [[nodiscard]] const T* begin() const { return data(); }
  [[nodiscard]] const T* end() const { return data() + size_; }
  void fill(T value) { std::fill_n(data(), size_, value); }

  /// Prints the elements in the form of NumPy. Include gspmd/program/print.hpp to use it.
  friend std::ostream& operator<<(std::ostream& out, const array& x) {
    static_assert(detail::array_printer<T>::is_included,
                  "gspmd: printing an array needs a header; add #include <gspmd/program/print.hpp>");
    if constexpr (detail::array_printer<T>::is_included) detail::array_printer<T>::print(out, x);
    return out;
  }

 private:
  template <class... Index>
  [[nodiscard]] std::size_t offset_of(Index... index) const {
    if (shape_.count != static_cast<int>(sizeof...(Index))) detail::refuse_indices(shape_, sizeof...(Index));
    [[maybe_unused]] int dim = 0;
    std::int64_t at = 0;
    ((at = at * shape_[dim++] + static_cast<std::int64_t>(index)), ...);
    return static_cast<std::size_t>(at);
  }
  static detail::extents to_extents(detail::span<const std::int64_t> shape) {
    if (shape.size() > static_cast<std::size_t>(detail::max_rank)) throw error("array: a tensor has at most 32 dims");
    detail::extents e;
    for (const auto x : shape) e.push_back(x);
    return e;
  }

  template <bool IsZeroed>
  [[nodiscard]] T* allocate() const {
    const auto count = static_cast<std::size_t>(size_);
    return detail::taken(
        size_ * static_cast<std::int64_t>(sizeof(T)), [&] { return IsZeroed ? new T[count]() : new T[count]; },
        [&] { return detail::array_text(shape_); });
  }

  detail::extents shape_;
  std::int64_t size_ = 0;
  std::unique_ptr<T[]> data_;
};

template <class T>
inline constexpr bool is_row_major<array<T>> = true;

}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/program/array.ipp"
#endif
