// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/compositions/masked_diagonal.hpp"
#include "gspmd/detail/passes/lower/loop_fuser.hpp"

namespace gspmd::detail {

/// Adds a sum over `dims` of `operand` as a loop over the diagonal only. Returns false and adds nothing if the sum
/// does not allow it.
///
///   ii->i of [n, n]       n elements, n + 1 apart
///   iij->j of [n, n, m]   a loop [n, m] of strides n m + m and 1, summed over its first dim
constexpr bool add_sum_of_diagonal(step_state& s, loop_fuser& loops, const instruction& op, int operand, int result,
                                   dim_mask dims) {
  const auto found = diagonal_of(s, operand, dims);
  if (found.of < 0) return false;
  local_value diagonal = s.program_.value(found.of);
  const auto without = [&found](int d) { return d > found.dropped ? d - 1 : d; };
  dim_places places;
  dim_mask summed = 0;
  diagonal.global.clear();
  diagonal.local.clear();
  for (int d = 0; d < s.program_.value(found.of).local.count; ++d) {
    places.push_back(static_cast<std::int8_t>(without(d == found.dropped ? found.kept : d)));
    if (d == found.dropped) continue;
    diagonal.global.push_back(s.program_.value(found.of).global[d]);
    diagonal.local.push_back(s.program_.value(found.of).local[d]);
    if ((dims & dim_bit(d)) != 0) summed |= dim_bit(without(d));
  }
  for (auto& use : diagonal.layout.splits) use.dim = static_cast<std::int8_t>(without(use.dim));
  const int mask = s.maker(operand).operands[0];
  for (const int v : {operand, mask}) {  // no step computes these values
    if (v == mask && s.uses_[v] > 0) break;
    s.waiting_[v] = 0;
    for (const int o : s.maker(v).operands) --s.uses_[o];
  }
  --s.uses_[operand];
  loops.reduce_all();
  loop_group group(s, diagonal.local);
  const int read = group.load(found.of, places);
  if (summed == 0) {
    group.stores.push_back(fused_store{static_cast<std::int16_t>(read), 0});
    group.results.push_back(result);
    loops.add_loop(group, op, result, {}, {});
    return true;
  }
  const int from = s.add_value(diagonal), reduced = widening(s).like(result);
  group.reduce(read, reduced, reduction_spec{group.loop, summed, monoid::add});
  loops.add_loop(group, op, from, {{op, from, result, summed, monoid::add}}, {reduced});
  return true;
}

}  // namespace gspmd::detail
