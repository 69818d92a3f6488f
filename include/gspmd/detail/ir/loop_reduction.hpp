// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Loops that reduce their own results. A reduced value is stored one block at a time, and no array holds the whole
/// value.
///
///   sum(exp(x))     one loop: load x, exp, to a block of 64 KiB at most; each block is added up before the next one is
///                   computed
///
/// The algorithm and the bits of the result are those of a value in an array. The sums of the same parts are added as
/// in reduce() over the existing elements.
namespace gspmd::detail {

/// A reduction of a register of a loop. It is stored as the result `slot`, after the results that are stored without
/// reduction.
struct loop_reduction {
  std::int16_t slot = 0;
  std::int16_t stored = 0;  // the slot that stores its operand: the slot of the first reduction of the same register
  dtype type = dtype::f32;
  // in table_of<reduction_spec>: of the value as if it were in memory, row-major in the order of the loop
  int reduction = 0;
  [[nodiscard]] constexpr bool is_stored() const { return stored == slot; }
  friend constexpr bool operator==(const loop_reduction&, const loop_reduction&) = default;
};

/// The largest number of reductions of one loop. They reduce the same dims of elements of one width.
inline constexpr int most_loop_reductions = 4;

/// The most bytes that a reduction combines in one pass (reduce_contiguous), for all widths of vectors.
inline constexpr std::int64_t reduced_at_once_bytes = 64 * 1024;

/// Returns the size of a block: the elements of one pass, and whole rows around them.
constexpr std::int64_t reduced_block_elems(const extents& loop, std::int64_t elem_bytes) {
  const auto most = reduced_at_once_bytes / elem_bytes + 2 * fused_block_elems, all = elements(loop);
  constexpr std::int64_t between_rows = 1024;  // for columns of rows longer than reduced_piece_bytes
  const auto needed = all * elem_bytes <= reduced_piece_bytes ? all : all + between_rows;
  return needed < most ? needed : most;
}
constexpr std::int64_t reduced_block_bytes(const extents& loop, std::int64_t elem_bytes) {
  return (reduced_block_elems(loop, elem_bytes) * elem_bytes + 63) / 64 * 64;
}

}  // namespace gspmd::detail
