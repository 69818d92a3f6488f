// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/axis_rule.hpp"
#include "gspmd/detail/passes/typed/program_typer.hpp"

namespace gspmd::detail {

/// Says why operands do not meet on an axis, and what would help.
constexpr text why_not_met(const node& n, const op_rule& rule, const operands_on_axis& in, const text& axis,
                           const axis_result& found) {
  const int k = found.operand;
  int other = k == 0 ? 1 : 0;  // one that it does not go with
  for (int o = in.count - 1; o >= 0; --o)
    if (o != k && in[o].is.is != state::constant && !(in[o].is == in[k].is)) other = o;
  text t("operand ");
  t << k << " is " << long_text(in[k].is) << " over `" << axis << '`';
  const auto beside = [&] {
    if (other < in.count) t << ", operand " << other << " is " << long_text(in[other].is);
  };
  switch (found.broken) {
    case mode_mistake::state_conflict:
      for (int o = 0; o < in.count; ++o)
        if (in[o].is.is == state::varying || in[o].is.is == state::shard) other = o;
      beside();
      if (other < in.count && in[other].is.is == state::partial) return t << ": equal data would be counted once on every device";
      return t << ": the gradient of operand " << k << " would miss a sum over `" << axis << '`';
    case mode_mistake::partial_varying_mix:
      beside();
      return t << ": terms of a sum and values of single devices do not go together";
    case mode_mistake::partial_nonlinear:
      return t << ", and what " << name_of(n.op) << " makes of its terms are not the terms of the result";
    case mode_mistake::partial_affine:
      if (in[k].is.is == state::partial)
        return t << ", and the number that the operator puts in would be counted on every device";
      for (int o = 0; o < in.count; ++o)
        if (in[o].is.is == state::partial) other = o;
      beside();
      return t << ": it would be counted once on every device";
    case mode_mistake::partial_product: return t << ", and so is another one: a product of sums is not the sum of the products";
    case mode_mistake::partial_denominator: return t << ": a quotient by a sum is not the sum of quotients";
    case mode_mistake::axis_used_twice: beside(); return t << ": the axis would split two dims of the result";
    case mode_mistake::op_on_whole_dim: return t << ", and the operator works on that dim as a whole";
    case mode_mistake::needs_communication: return t << ", and the result cannot keep that split: elements would move";
    default:
      beside();
      t << ": a dim that both have is split in one of them only";
      if (in[k].is.is == state::shard) t << ", or otherwise";
      return rule.uniform || found.broken != mode_mistake::ambiguous_contraction ? t : t << ", and it is summed";
  }
}

constexpr void complain(program_typer& t, int i, const op_rule& rule, const axis_rule& along, const operands_on_axis& in, int a,
                        const axis_result& found) {
  const node& n = t.at(i);
  const text axis = axes_text(t.on_mesh, axis_bit(a));
  typed_mistake& m = t.refuse(found.broken, i, found.operand, a, why_not_met(n, rule, in, axis, found));
  inline_vec<held_operand, max_map_arity> operands;
  for (int k = 0; k < n.operands.count; ++k) operands.push_back(t.held(n, k));
  m.remedies = remedies(t.on_mesh, t.is_local(a) ? nullptr : &rule, along, in, operands, a, (n.local_axes & axis_bit(a)) != 0);
}

}  // namespace gspmd::detail
