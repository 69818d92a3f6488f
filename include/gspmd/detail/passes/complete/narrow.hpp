// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/passes/request/value_uses.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Returns the preferred sharding of every value. It is the sharding of completion, unless the users of the value need
/// less.
///
/// Input: the shardings of completion. Result, by node:
/// 1. If an unannotated result has a single user and this is a reshard, the sharding of that reshard.
/// 2. If all users of the value read the same slice, the slice. Only the slice is then made: all_reduce and slice
///    become reduce_scatter, also with elementwise operators in between.
/// 3. Otherwise the sharding of completion.
///
///   y = reshard(2 * h, [data, _]), h [_, _]: 2 * h and h become [data, _]. If h is a sum over data, one reduce_scatter
///   makes it.
///
/// In a manual region, this holds for the axes that the region leaves to the planner. The results of the region's own
/// collectives stay unchanged. In a program with types, only values that repeat their operand are made in parts, so no
/// reduction changes into another collective.
constexpr vec<sharding> narrowed(const graph& g, const mesh_shape& mesh, const value_uses& uses, span<const sharding> completed) {
  vec<sharding> preferred(completed.data(), completed.data() + completed.size());
  const node* const nodes = g.nodes.data();
  sharding* const at = preferred.data();
  for (int i = static_cast<int>(g.nodes.size()); i-- > 0;) {
    const span<const int> readers = uses.readers(i);
    const int count = static_cast<int>(readers.size());
    if (uses.needed[i] == 0 || facts_of(nodes[i].op).made == origin::given || count == 0 || readers[0] == i) continue;
    if (nodes[i].local_axes != nodes[i].hidden_axes || facts_of(nodes[i].op).made == origin::viewed) continue;
    const dim_mask may_change = !g.is_explicit ? ~dim_mask{0} : repeated_dims(g, nodes[i]);
    if (may_change == 0) continue;
    if (count == 1 && !nodes[i].annotated && facts_of(nodes[i].op).made == origin::shards &&
        facts_of(nodes[readers[0]].op).made == origin::renamed && at[readers[0]].partial == 0) {
      at[i] = at[readers[0]];
      continue;
    }
    bool alike = true;
    sharding slice = at[i];
    for (int r = 0; r < count && alike; ++r) {
      const int reader = readers[static_cast<std::size_t>(r)];
      const node& user = nodes[reader];
      const auto& facts = facts_of(user.op);
      alike = false;
      if (reader == i || !facts.keeps_slices || (g.is_explicit && facts.made == origin::renamed)) break;  // itself: an output
      sharding asked = slice;
      if (facts.uniform) {
        asked.splits = at[reader].splits;
      } else {
        op_rule rule;
        rule_of(g, user, rule);
        asked.splits = to_dims(mesh, rule, rule.operand(0), to_factors(mesh, rule, rule.result(), at[reader].splits));
      }
      alike = r == 0 || asked.splits == slice.splits;
      slice = asked;
    }
    for (int d = 0; d < nodes[i].shape.count && alike && g.is_explicit; ++d)
      alike = (may_change & dim_bit(d)) != 0 || slice.axes_of(d) == at[i].axes_of(d);
    if (alike && !(slice.splits == at[i].splits) && lies_inside(mesh, nodes[i].shape, at[i], slice)) at[i].splits = slice.splits;
  }
  return preferred;
}

}  // namespace gspmd::detail
