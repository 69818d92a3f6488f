// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// A device's method for the transform of lines of n complex elements, and the scratch of this method.
struct line_transform {
  static constexpr std::int64_t most_bytes = 128;  // of the real and imaginary parts in two of the widest vectors
  static constexpr std::int64_t largest_radix = 13;

  std::int64_t n = 1;
  std::int64_t rows = 1;    // > 1: a line is transformed as a matrix with this number of rows, along columns, then along rows
  std::int64_t padded = 0;  // > 0: a convolution of this length (a power of two) replaces the transform
  bool by_vectors = true;   // processes one line per lane of a vector

  /// Picks the method. Many short lines are processed in vectors, one line per lane. For a long or single line, the
  /// columns and rows of its matrix are processed in vectors (Bailey 1990). A line with a large prime factor is a
  /// convolution (Bluestein 1970).
  static constexpr line_transform of(std::int64_t n, std::int64_t line_count) {
    line_transform t;
    t.n = std::max<std::int64_t>(n, 1);
    const bool is_long = n >= 8192 || (n >= 128 && line_count < 8);
    if (!has_small_factors(n)) {
      for (t.padded = 1; t.padded < 2 * n - 1;) t.padded *= 2;
      t.by_vectors = n < 4096 && line_count >= 4;
    } else if (is_long) {
      for (std::int64_t r = largest_radix, left = n; r > 1; --r)
        for (; left % r == 0; left /= r)
          if (t.rows * r * t.rows * r <= n) t.rows *= r;
    } else t.by_vectors = line_count >= 2;
    return t;
  }
  static constexpr bool has_small_factors(std::int64_t n) {
    for (std::int64_t r = 2; r <= largest_radix; ++r)
      while (n > 1 && n % r == 0) n /= r;
    return n <= 1;
  }
  /// Returns the elements of scratch, of `elem_bytes` each. Scratch holds the roots of unity, and the input and output
  /// of a pass for the lines that are processed together.
  [[nodiscard]] constexpr std::int64_t scratch_elems(std::int64_t elem_bytes) const {
    const std::int64_t lanes = by_vectors ? most_bytes / elem_bytes : 1, cols = n / rows;
    if (padded > 0) return n + 2 * padded + 2 * padded * lanes;
    if (rows > 1) return rows + cols + 2 * coarse() + n + 2 * cols * lanes;
    return n + 2 * n * lanes;
  }
  /// Returns the distance of the coarse roots. Root e of all n is the product of the fine root e % coarse() and a
  /// coarse root. It is a power of two and at least the square root of n.
  [[nodiscard]] constexpr std::int64_t coarse() const {
    std::int64_t c = 1;
    while (c * c < n) c *= 2;
    return c;
  }
};

inline namespace GSPMD_TARGET {

/// Transforms the lines of one device (fft/detail/transform_lines.hpp). The blocks have `rank` dims: x, its transform,
/// then scratch along the dim of the lines.
template <bool IsInverse, class T>
void transform_lines(int rank, const erased_block* blocks);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
