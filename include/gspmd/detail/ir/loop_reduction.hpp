// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Loops that reduce what they compute: some of it goes through memory a block at a time, and no array holds all of it.
///
///   sum(exp(x))     one loop: load x, exp, to a block of 64 KiB at most; each block is added up before the next one is computed
///
/// A value is reduced by the same algorithm, and with the same bits, as if it lay in an array: the parts whose sums are added are
/// those of reduce() over the elements that exist.
namespace gspmd::detail {

/// A reduction of a register of a loop, stored as the result `slot`, after those that are stored as they are.
struct loop_reduction {
  std::int16_t slot = 0;
  std::int16_t stored = 0;  // the result in whose place its operand is stored: that of the first reduction of the same register
  dtype type = dtype::f32;
  int reduction = 0;  // in table_of<reduction_spec>: of the value that would lie in memory, row-major as the loop
  [[nodiscard]] constexpr bool is_stored() const { return stored == slot; }
  friend constexpr bool operator==(const loop_reduction&, const loop_reduction&) = default;
};

/// The most reductions of one loop. They reduce the same dims of elements of one width.
inline constexpr int most_loop_reductions = 4;

/// The elements that a reduction combines at once have at most so many bytes (reduce_contiguous), whatever the width of vectors.
inline constexpr std::int64_t reduced_at_once_bytes = 64 * 1024;

/// A block: what is reduced at once, and whole rows around it.
constexpr std::int64_t reduced_block_elems(const extents& loop, std::int64_t elem_bytes) {
  const auto most = reduced_at_once_bytes / elem_bytes + 2 * fused_block_elems, all = elements(loop);
  constexpr std::int64_t between_rows = 1024;  // where columns of rows longer than reduced_piece_bytes are reduced
  const auto needed = all * elem_bytes <= reduced_piece_bytes ? all : all + between_rows;
  return needed < most ? needed : most;
}
constexpr std::int64_t reduced_block_bytes(const extents& loop, std::int64_t elem_bytes) {
  return (reduced_block_elems(loop, elem_bytes) * elem_bytes + 63) / 64 * 64;
}

}  // namespace gspmd::detail
