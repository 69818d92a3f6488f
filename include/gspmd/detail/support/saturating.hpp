// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"

namespace gspmd::detail {

/// Arithmetic for numbers of elements and bytes, which are not negative. A result that is too large becomes the largest
/// std::int64_t, because user-provided extents can be huge and a count must not wrap around.
constexpr std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > std::numeric_limits<std::int64_t>::max() / b ? std::numeric_limits<std::int64_t>::max() : a * b;
}
constexpr std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  return a > std::numeric_limits<std::int64_t>::max() - b ? std::numeric_limits<std::int64_t>::max() : a + b;
}
constexpr std::int64_t saturating_elements(const extents& shape) {
  std::int64_t n = 1;
  for (const auto e : shape) n = saturating_multiply(n, e);
  return n;
}

/// The largest number of bytes of a tensor.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 60;

/// Returns the bytes of a tensor, or most_bytes + 1 if there are more. Returns -1 if an extent is negative. An extent
/// of 0 counts as 1, because products of extents are formed in any order.
constexpr std::int64_t bounded_bytes(const extents& shape, std::int64_t elem_bytes) {
  std::int64_t bytes = elem_bytes;
  for (const auto e : shape) {
    if (e < 0) return -1;
    if (e > 1) bytes = e > most_bytes / bytes ? most_bytes + 1 : bytes * e;
  }
  return bytes;
}
/// Returns the error text for a shape that is too large or has a negative extent. Returns an empty text if the shape is
/// valid.
[[gnu::cold]] constexpr text size_problem(const extents& shape, std::int64_t elem_bytes) {
  const std::int64_t bytes = bounded_bytes(shape, elem_bytes);
  if (bytes < 0) return text("an extent of ") << shape_text(shape) << " is negative";
  if (bytes <= most_bytes) return {};
  const bool is_empty = saturating_elements(shape) == 0;
  return shape_text(shape) << " has more than 2^60 bytes" << (is_empty ? ", an extent of 0 counted as 1" : "");
}

}  // namespace gspmd::detail
