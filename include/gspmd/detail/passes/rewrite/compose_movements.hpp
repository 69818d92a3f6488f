// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/composed.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/rewrite/canonical.hpp"

namespace gspmd::detail {

/// Composes consecutive movements into one movement if the values between them have no other users. Then all users
/// read the operand of the first movement. An annotated value is kept. In a program with types, only movements with
/// permitted exchanges are composed. Returns true if any movements were composed; the replaced nodes remain in the
/// graph without users.
///
///   pad(x, {1}, {0}) and slice(..., {0}, {n})              a shift, one exchange
///   slices of pad(x, {1}, {1}) from 0, 1 and 2             three reads of x at offsets, whose loop shares one exchange
constexpr bool compose_movements(graph& g) {
  const auto count = g.nodes.size();
  bool any = false;
  for (const auto& n : g.nodes) any = any || (facts_of(n.op).composes && facts_of(g.nodes[n.operands[0]].op).composes);
  if (!any) return false;

  vec<int> uses(count, 0), first(count, -1), next(count, -1);  // linked lists of the users that can be composed
  const bool is_typed = g.is_explicit;
  const auto may_be_composed = [is_typed](const node& n) {
    return facts_of(n.op).composes && !n.forbid_reshard && (!is_typed || n.exchange_axes != 0);
  };
  for (std::size_t i = count; i-- > 0;) {
    const node& n = g.nodes[i];
    for (const int o : n.operands) ++uses[o];
    if (!may_be_composed(n)) continue;
    next[i] = first[n.operands[0]];
    first[n.operands[0]] = static_cast<int>(i);
  }
  for (const int o : g.outputs) ++uses[o];
  any = false;
  vec<node> made;
  for (std::size_t i = 0; i < count; ++i) {
    const node n = g.nodes[i];
    if (n.annotated || !may_be_composed(n)) continue;
    const extents from = g.nodes[n.operands[0]].shape;
    made.clear();
    for (int user = first[i]; user >= 0; user = next[user]) {
      node both = g.nodes[user];
      if (both.region != n.region || !compose(both, n, from)) break;
      both.exchange_axes |= n.exchange_axes;
      made.push_back(both);
    }
    if (made.empty() || static_cast<int>(made.size()) != uses[i]) continue;
    any = true;
    std::size_t k = 0;
    for (int user = first[i]; user >= 0; user = next[user]) g.nodes[user] = made[k++];
    g.composed.push_back({n.tag, made[0].tag, n.type, n.shape});
    for (const auto& also : g.also_tagged)
      if (also.node == static_cast<int>(i)) g.composed.push_back({also.tag, made[0].tag, n.type, n.shape});
  }
  return any;
}

}  // namespace gspmd::detail
