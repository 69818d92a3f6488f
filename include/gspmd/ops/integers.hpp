// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd {

/// Extents, dims or other integers as operators take them: written out, or a vector, array or span of std::int64_t that is known
/// when the program is built. It is read by the call that gets it and not kept.
///
///     reshape(x, {8, -1})      const std::vector<std::int64_t> shape = ...;  reshape(x, shape)
struct integers : detail::span<const std::int64_t> {
  using span::span;
  constexpr integers(std::initializer_list<std::int64_t> list)
      : span(list.begin(), list.size()) {}  // NOLINT: implicit on purpose
  /// A shape is copied: `broadcast_in_dim(2.0 * m, x.shape(), {})` may trace the product after it has asked for the shape, which the
  /// graph then moves.
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

/// A few of them, kept: for options, which a program may name and use several times. There may be as many as a tensor has dims; of more,
/// only how many there were is known, for whoever refuses them.
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

  /// How many there were; [i] is one of the first 32.
  [[nodiscard]] constexpr std::size_t size() const { return count_; }
  [[nodiscard]] constexpr std::int64_t operator[](std::size_t i) const { return items_[i]; }

 private:
  static constexpr std::size_t capacity = 32;
  std::int64_t items_[capacity]{};
  std::size_t count_ = 0;
};

}  // namespace gspmd
