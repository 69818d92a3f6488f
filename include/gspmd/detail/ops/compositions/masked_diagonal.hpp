// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// The diagonal of two dims of a value after a mask: where(iota of `kept` == iota of `dropped`, `of`, 0).
struct masked_diagonal {
  int of = -1, kept = 0, dropped = 0;  // of = -1: no diagonal
};
/// Returns the diagonal that a sum over `dims` of `v` takes, during lowering. `v` must wait and have no other user. The
/// masked value must be in memory and whole along both dims: along a split dim, the offset of an element differs
/// between devices. Both dims must have the same extent: some elements of a rectangle's longer dim are on no diagonal.
template <class State>
constexpr masked_diagonal diagonal_of(const State& s, int v, dim_mask dims) {
  const auto is_made_by = [&s](int w, const operator_code& op) { return s.waits(w) && s.node_of(s.maker(w)).op == op; };
  const auto source_of = [&s](int w) {
    const bool is_source = s.waits_virtual(w) && facts_of(s.node_of(s.maker(w)).op).made == origin::source;
    return is_source ? facts_of(s.node_of(s.maker(w)).op).in_loop(*s.graph_, s.node_of(s.maker(w))) : scalar_op{};
  };
  if (!is_made_by(v, code_of<where_op>) || s.uses_[v] != 1 || !is_made_by(s.maker(v).operands[0], code_of<compare_eq_op>))
    return {};
  const instruction &select = s.maker(v), &equal = s.maker(select.operands[0]);
  const int of = select.operands[1];
  const auto first = source_of(equal.operands[0]), second = source_of(equal.operands[1]), other = source_of(select.operands[2]);
  const auto counts = [](const scalar_op& o) { return o.is_index() && (o.type == dtype::s64 || o.type == dtype::s32); };
  if (!counts(first) || !counts(second) || first.dim == second.dim || !other.is_constant() || other.real != 0 ||
      other.integer != 0)
    return {};
  const auto& x = s.program_.value(of);
  if (s.waits(of) || s.waits(s.base[of]) || s.offsets.read_of(of) != nullptr || s.given_of(of, x.local) != 0 ||
      !x.order.empty() || is_complex(x.type) || is_own(x.type))
    return {};
  if (x.local[first.dim] != x.local[second.dim]) return {};
  for (const int d : {first.dim, second.dim})
    if (parts_of(s.out.mesh, x.layout, d) != 1) return {};
  if ((dims & dim_bit(second.dim)) != 0) return {of, first.dim, second.dim};
  if ((dims & dim_bit(first.dim)) != 0) return {of, second.dim, first.dim};
  return {};
}

}  // namespace gspmd::detail
