// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/passes/complete/value_uses.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Returns the sharding that the program asks for of every value: the one that completion found; or the one that the user asks for next,
/// where a value that nobody annotated is only read to be resharded; or a part of it. Where every reader of a value takes the same slice of
/// it, the slice is all that is made: all_reduce and slice become reduce_scatter, through any elementwise operators in between.
/// In a manual region that goes for the axes which are not its own; what lies as a collective of the region has it stays. Of a program
/// with types, which are asked for as they are, only what repeats its operand is made in parts: no reduction becomes another.
constexpr vec<sharding> narrowed(const graph& g, const mesh_shape& mesh, const value_uses& uses, span<const sharding> completed) {
  vec<sharding> preferred(completed.data(), completed.data() + completed.size());
  const node* const nodes = g.nodes.data();
  sharding* const at = preferred.data();
  for (int i = static_cast<int>(g.nodes.size()); i-- > 0;) {
    const span<const int> readers = uses.readers(i);
    const int count = static_cast<int>(readers.size());
    if (uses.needed[i] == 0 || facts_of(nodes[i].op).made == origin::given || count == 0 || readers[0] == i) continue;
    if (nodes[i].local_axes != nodes[i].hidden_axes || facts_of(nodes[i].op).made == origin::viewed) continue;
    const dim_mask may_change = g.find_types == nullptr ? ~dim_mask{0} : repeated_dims(g, nodes[i]);
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
      if (reader == i || !facts.keeps_slices || (g.find_types != nullptr && facts.made == origin::renamed))
        break;  // itself: an output
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
    for (int d = 0; d < nodes[i].shape.count && alike && g.find_types != nullptr; ++d)
      alike = (may_change & dim_bit(d)) != 0 || slice.axes_of(d) == at[i].axes_of(d);
    if (alike && !(slice.splits == at[i].splits) && lies_inside(mesh, nodes[i].shape, at[i], slice)) at[i].splits = slice.splits;
  }
  return preferred;
}

}  // namespace gspmd::detail
