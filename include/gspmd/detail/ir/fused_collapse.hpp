// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Collapses the loop of a group into a loop with the least number of dims. Both paths run the collapsed loop.
///
///   loop [4, 6], a load of strides {6, 1} and one of {0, 0}  -> [24], {1} and {0}
///   loop [4, 6], a load of strides {0, 1}                    -> unchanged: the rows share the load
///   loop [4, 1, 6], no load moves along the middle           -> as [4, 6]
///   loop [4, 6], an iota along dim 0                         -> unchanged: it needs the index of the row
///   loop [4, 0, 6]                                           -> [0]
///
/// If `keeps_dims` is set, or a load uses the user's strides, no dims are joined. The dims in `cut` end early on some
/// devices. An inner dim can still join a dim in `cut`, so that the joined dim ends at a multiple. Returns the mask of
/// these dims in the new loop, in the same number and order.
///
///   loop [4, 6], dim 0 is cut                                -> [24], cut
///   loop [4, 6], dim 1 is cut                                -> unchanged
///   loop [4, 2, 3], a load at offset 1 along dim 0           -> [4, 6]
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
  bool is_kept[max_rank]{};  // dims of an iota or of a load at an offset
  for (const auto& o : ops) {
    if (o.op == opcode::iota) is_kept[o.dim] = true;
    for (const auto& along : o.offsets) is_kept[along.dim] = true;
  }

  // to[d]: the dim of the result that gets the stride of dim d; -1: no dim
  int to[max_rank]{};
  extents result;
  dim_mask result_cut = 0;
  int before = -1;  // the last kept dim
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
