// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/request/value_uses.hpp"

/// The values whose sharding the planner may change.
namespace gspmd::detail {

/// Returns true if a body passes the value on: a carried value or a result of a conditional. The planner chooses its
/// sharding, whichever operator made the operand.
constexpr bool is_handed_on(const operator_code& op) { return op == opcode::carry || op == opcode::cond_result; }

/// Returns true if the planner may change the sharding of node `i`. The node is neither annotated nor an output, is
/// made by an operator or passed on by a body, and is read by no reshard.
constexpr bool is_free(const graph& g, const value_uses& uses, int i) {
  const auto at = [&g](int k) -> const node& { return g.nodes[static_cast<std::size_t>(k)]; };
  const node& n = at(i);
  if (n.annotated || uses.readers(i).empty() || n.results != 1) return false;  // an unread result of a conditional is made too
  if ((facts_of(n.op).made != origin::shards && !is_handed_on(n.op)) || n.operands.count == 0) return false;
  for (const int reader : uses.readers(i)) {
    if (reader == i) return false;
    const operator_code op = at(reader).op;
    if (facts_of(op).made != origin::shards && op != opcode::loop_result && !is_handed_on(op)) return false;
  }
  return true;
}

/// Returns the splits of tensor `to` of an operator that correspond to `splits` of its tensor `from`. Drops the splits
/// of factors that `to` lacks or that must stay whole.
///
///   bd,df->bf, from x [data, model] to the result: [data, _]
constexpr inline_vec<axis_use, max_axes> carried(const mesh_shape& mesh, const op_rule& rule, const tensor_map& from,
                                                 const inline_vec<axis_use, max_axes>& splits, const tensor_map& to) {
  if (rule.uniform) return splits;
  auto factors = to_factors(mesh, rule, from, splits);
  for (int k = factors.count - 1; k >= 0; --k) {
    if (rule.factors[factors[k].dim].kind != factor_kind::whole && to.holds(factors[k].dim)) continue;
    for (int j = k; j + 1 < factors.count; ++j) factors[j] = factors[j + 1];
    factors.pop_back();
  }
  return to_dims(mesh, rule, to, factors);
}

/// Returns `splits`, extended so that devices do not repeat the work for a value whose operands are not split (random
/// numbers, constants). All unused axes split the largest unsplit dim, and each device makes its part.
///
///   4 x 8 random numbers on a mesh of x and y: [_, x y]
constexpr inline_vec<axis_use, max_axes> split_further(const mesh_shape& mesh, const node& n,
                                                       const inline_vec<axis_use, max_axes>& splits) {
  sharding s;
  s.splits = splits;
  int dim = -1;
  for (int d = 0; d < n.shape.count; ++d)
    if (n.shape[d] > 1 && s.axes_of(d) == 0 && (dim < 0 || n.shape[d] > n.shape[dim])) dim = d;
  for (int a = 0; dim >= 0 && a < mesh.axis_count(); ++a)
    if (mesh.sizes[a] > 1 && ((s.split_axes() | n.annotation.closed) & axis_bit(a)) == 0) s.add_split(a, dim);
  return s.splits;
}

}  // namespace gspmd::detail
