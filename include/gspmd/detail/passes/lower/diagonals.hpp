// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/lower/loop_fuser.hpp"

namespace gspmd::detail {

/// The diagonal of two dims of a value, which a mask leaves: select(iota of `kept` == iota of `dropped`, `of`, 0).
struct masked_diagonal {
  int of = -1, kept = 0, dropped = 0;  // of -1: there is none
};
/// The diagonal that a sum over `dims` of `v` takes, if `v` waits and nobody else reads it, and what is masked lies in memory, whole along both
/// dims: where one is split, an element has another offset on every device.
constexpr masked_diagonal diagonal_of(const step_state& s, int v, dim_mask dims) {
  const auto is_made_by = [&s](int w, opcode op) { return s.waits(w) && s.node_of(s.maker(w)).op == op; };
  const auto source_of = [&s](int w) {
    const bool is_source = s.waits_virtual(w) && facts_of(s.node_of(s.maker(w)).op).made == origin::source;
    return is_source ? facts_of(s.node_of(s.maker(w)).op).in_loop(*s.graph_, s.node_of(s.maker(w))) : scalar_op{};
  };
  if (!is_made_by(v, opcode::select) || s.uses_[v] != 1 || !is_made_by(s.maker(v).operands[0], opcode::compare_eq)) return {};
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
  for (const int d : {first.dim, second.dim})
    if (parts_of(s.out.mesh, x.layout, d) != 1) return {};
  if ((dims & dim_bit(second.dim)) != 0) return {of, first.dim, second.dim};
  if ((dims & dim_bit(first.dim)) != 0) return {of, second.dim, first.dim};
  return {};
}

/// Adds a sum over `dims` of `operand` as a loop over a diagonal alone, if it takes one; false if not.
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
  for (const int v : {operand, mask}) {  // nobody computes them
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
