// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/loops.hpp"

/// Sums of many terms are made in parts, whose sums are summed in parts again: rounding errors grow with how many additions
/// follow each other, which then is the logarithm of the number of terms.
namespace gspmd::detail {

/// So many additions to one number follow each other at most, and so many parts are added up.
inline constexpr std::int64_t most_in_turn = 256, parts_in_turn = 32;

/// The size of the parts of n > leaf terms: 1 to 32 of them, and each is a leaf or has parts of its own.
constexpr std::int64_t part_size(std::int64_t n, std::int64_t leaf) {
  while (leaf < (n + parts_in_turn - 1) / parts_in_turn) leaf *= parts_in_turn;
  return leaf;
}

/// Which loop of several over the terms of a sum is cut, and into parts of which size; none if the sum is short. Of the last loop
/// `unit` terms count as one.
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
