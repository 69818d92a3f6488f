// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/complete/value_uses.hpp"

/// The values of a program that may lie otherwise than completion has them.
namespace gspmd::detail {

/// Whether a value is handed on by a body and so lies as is asked for, whoever makes it: what a loop carries, what a conditional gives.
constexpr bool is_handed_on(const operator_code& op) { return op == opcode::carry || op == opcode::cond_result; }

/// Whether nobody annotated node `i`, nor what it is only read to be resharded to.
constexpr bool is_free(const graph& g, const value_uses& uses, int i) {
  const auto at = [&g](int k) -> const node& { return g.nodes[static_cast<std::size_t>(k)]; };
  const node& n = at(i);
  if (n.annotated || uses.readers(i).empty() || n.results != 1)
    return false;  // of a conditional all results are made, read or not
  if ((facts_of(n.op).made != origin::shards && !is_handed_on(n.op)) || n.operands.count == 0) return false;
  for (const int reader : uses.readers(i)) {
    if (reader == i) return false;
    const operator_code op = at(reader).op;
    if (facts_of(op).made != origin::shards && op != opcode::loop_result && !is_handed_on(op)) return false;
  }
  return true;
}

/// `splits` of a tensor of an operator as another tensor of it has them; what it does not have is not split.
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

/// Returns the splits of a value that devices repeat, since nothing it is made of is split (random numbers, constants), so that each
/// makes its part of it: by all axes that nobody has a use for, on the largest dim.
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
