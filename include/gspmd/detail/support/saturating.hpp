// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/text.hpp"

namespace gspmd::detail {

/// Counts of things that are not negative. They stop at the largest number there is: extents may be absurd, and a count must
/// not wrap round to a small one.
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

/// The most bytes that a tensor may have.
inline constexpr std::int64_t most_bytes = std::int64_t{1} << 60;

/// The bytes of a tensor, up to one more than most_bytes; -1: an extent is negative. Products of extents are formed in any order,
/// so an extent of 0 counts as 1.
constexpr std::int64_t bounded_bytes(const extents& shape, std::int64_t elem_bytes) {
  std::int64_t bytes = elem_bytes;
  for (const auto e : shape) {
    if (e < 0) return -1;
    if (e > 1) bytes = e > most_bytes / bytes ? most_bytes + 1 : bytes * e;
  }
  return bytes;
}
/// The error text for a shape that is too large or has a negative extent; empty if there is no mistake.
[[gnu::cold]] constexpr text size_problem(const extents& shape, std::int64_t elem_bytes) {
  const std::int64_t bytes = bounded_bytes(shape, elem_bytes);
  if (bytes < 0) return text("an extent of ") << shape_text(shape) << " is negative";
  if (bytes <= most_bytes) return {};
  const bool is_empty = saturating_elements(shape) == 0;
  return shape_text(shape) << " has more than 2^60 bytes" << (is_empty ? ", an extent of 0 counted as 1" : "");
}

}  // namespace gspmd::detail
