// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd {

/// Extents, dims or other integers as arguments of operators: a list, or a vector, array or span of std::int64_t. The
/// called operator reads the integers and does not keep a reference to them.
///
/// **Example.**
///     reshape(x, {8, -1})      const std::vector<std::int64_t> shape = ...;  reshape(x, shape)
struct integers : detail::span<const std::int64_t> {
  using span::span;
  constexpr integers(std::initializer_list<std::int64_t> list)
      : span(list.begin(), list.size()) {}  // NOLINT: implicit on purpose
  /// Copies a shape. `broadcast_in_dim(2.0 * m, x.shape(), {})` may evaluate the shape before the product. Adding the
  /// product can move the graph's nodes, and the shape with them.
  constexpr integers(const detail::extents& shape) : kept_(shape) { refer_to_kept(); }  // NOLINT: likewise
  constexpr integers(const integers& other) : span(other), kept_(other.kept_) { refer_to_kept(); }
  constexpr integers& operator=(const integers& other) {
    span::operator=(other);
    kept_ = other.kept_;
    refer_to_kept();
    return *this;
  }

 private:
  constexpr void refer_to_kept() {
    if (!kept_.empty()) span::operator=(span(kept_.data(), static_cast<std::size_t>(kept_.size())));
  }

  detail::extents kept_;
};

/// A copy of at most 32 integers, for options that a program may name and use several times. A tensor has at most 32
/// dims. If there are more than 32, size() is still right, so that the user of the option can refuse them.
class kept_integers {
 public:
  constexpr kept_integers() = default;
  constexpr kept_integers(std::initializer_list<std::int64_t> list) : kept_integers(integers(list)) {}  // NOLINT: likewise
  template <class List>
    requires std::convertible_to<const List&, integers>
  constexpr kept_integers(const List& list) : kept_integers(integers(list)) {}  // NOLINT: likewise
  constexpr kept_integers(integers list) : count_(list.size()) {                // NOLINT: likewise
    for (std::size_t i = 0; i < count_ && i < capacity; ++i) items_[i] = list[i];
  }

  /// Returns the number of integers in the list. Operator [] reads the first 32 integers only.
  [[nodiscard]] constexpr std::size_t size() const { return count_; }
  [[nodiscard]] constexpr std::int64_t operator[](std::size_t i) const { return items_[i]; }

 private:
  static constexpr std::size_t capacity = 32;
  std::int64_t items_[capacity]{};
  std::size_t count_ = 0;
};

}  // namespace gspmd
