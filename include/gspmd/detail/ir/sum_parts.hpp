// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/loops.hpp"

/// Sums of many terms are computed in parts, and the parts are again summed in parts. Rounding errors grow with the
/// number of consecutive additions, which is then the logarithm of the number of terms.
namespace gspmd::detail {

/// The largest number of consecutive additions to one number, and the largest number of parts that are summed.
inline constexpr std::int64_t most_in_turn = 256, parts_in_turn = 32;

/// Returns the size of the parts of n > leaf terms. There are 1 to 32 parts, and each part is a leaf or is split into
/// parts.
constexpr std::int64_t part_size(std::int64_t n, std::int64_t leaf) {
  while (leaf < (n + parts_in_turn - 1) / parts_in_turn) leaf *= parts_in_turn;
  return leaf;
}

/// The loop over terms of a sum that is split, and the size of its parts; loop -1 if the sum is short. In the last
/// loop, `unit` terms count as one.
struct loop_part {
  int loop = -1;
  std::int64_t size = 0;
};
template <int Buffers>
constexpr loop_part part_of_loops(const strided_loop<Buffers>* loops, int count, std::int64_t unit) {
  if (count == 0) return {};
  std::int64_t inside = (loops[count - 1].extent + unit - 1) / unit;  // steps inside of loop i
  int i = count - 1;
  std::int64_t leaf = most_in_turn * unit;
  for (int outer = count - 2; outer >= 0; --outer) {
    if (loops[outer].extent == 1) continue;
    i = outer;
    leaf = inside < most_in_turn ? most_in_turn / inside : 1;
    inside *= loops[outer].extent;
  }
  if (inside <= most_in_turn) return {};
  return {i, part_size(loops[i].extent, leaf)};
}

}  // namespace gspmd::detail
