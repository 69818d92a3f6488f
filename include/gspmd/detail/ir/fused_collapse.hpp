// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Turns the loop of a group into one of as few dims as possible; both paths execute what comes out.
///
///   loop [4, 6], a load of strides {6, 1} and one of {0, 0}  -> [24], {1} and {0}
///   loop [4, 6], a load of strides {0, 1}                    -> unchanged: the rows share it
///   loop [4, 1, 6], nothing moves along the middle           -> as [4, 6]
///   loop [4, 6], an iota along dim 0                         -> unchanged: it needs the row's index
///   loop [4, 0, 6]                                           -> [0]
///
/// With `keeps_dims`, or where a load lies by the caller's strides, no dims are joined.
/// The dims in `cut` end early on some devices. What is inside of such a dim may still join it, so that it ends at a multiple;
/// the result is the mask of the loop's new dims, as many and in the same order.
///
///   loop [4, 6], dim 0 is cut                                -> [24], cut
///   loop [4, 6], dim 1 is cut                                -> unchanged
///   loop [4, 2, 3], a load one further along dim 0           -> [4, 6]
constexpr dim_mask collapse_loop(extents& loop, vec<scalar_op>& ops, dim_mask cut = 0, span<fused_margin> margins = {},
                                 bool keeps_dims = false) {
  for (const auto& o : ops) keeps_dims = keeps_dims || o.given != 0;
  if (keeps_dims) return cut;
  if (elements(loop) == 0) {
    loop = extents(1, 0);
    for (auto& o : ops) {
      if (o.op == opcode::parameter) o.strides = extents(1, 0);
      o.dim = 0;
      for (auto& along : o.offsets) along.dim = 0;
    }
    for (auto& m : margins) m.strides = extents(1, 0);
    return 0;
  }
  bool is_kept[max_rank]{};  // or one of a load at an offset
  for (const auto& o : ops) {
    if (o.op == opcode::iota) is_kept[o.dim] = true;
    for (const auto& along : o.offsets) is_kept[along.dim] = true;
  }

  // to[d]: the dim of the result that takes over the stride of dim d; -1: none does
  int to[max_rank]{};
  extents result;
  dim_mask result_cut = 0;
  int before = -1;  // the last dim that was kept
  for (int d = 0; d < loop.count; ++d) {
    to[d] = -1;
    const bool is_cut = (cut & dim_bit(d)) != 0;
    if (loop[d] == 1 && !is_kept[d] && !is_cut) continue;
    bool joins = before >= 0 && !is_kept[before] && !is_kept[d] && !is_cut;
    if (joins)
      for (const auto& o : ops)
        if (o.op == opcode::parameter && o.strides[before] != o.strides[d] * loop[d]) {
          joins = false;
          break;
        }
    for (const auto& m : margins) joins = joins && m.strides[before] == m.strides[d] * loop[d];
    if (joins) {
      to[before] = -1;
      result[result.count - 1] *= loop[d];
    } else {
      result.push_back(loop[d]);
      if (is_cut) result_cut |= dim_bit(result.count - 1);
    }
    to[d] = result.count - 1;
    before = d;
  }

  const auto place = [&](extents& strides) {
    extents placed(result.count, 0);
    for (int d = 0; d < loop.count; ++d)
      if (to[d] >= 0) placed[to[d]] = strides[d];
    strides = placed;
  };
  for (auto& o : ops) {
    if (o.op == opcode::iota) o.dim = static_cast<std::int8_t>(to[o.dim]);
    for (auto& along : o.offsets) along.dim = static_cast<std::int8_t>(to[along.dim]);
    if (o.op == opcode::parameter) place(o.strides);
  }
  for (auto& m : margins) place(m.strides);
  loop = result;
  return result_cut;
}

}  // namespace gspmd::detail
