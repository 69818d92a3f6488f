// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/use_search.hpp"
#include "gspmd/detail/passes/emit/value_forms.hpp"

namespace gspmd::detail {

/// What a use of mesh axes by the factors of an operator's rule asks of its tensors, partial sums included: a partial result
/// stays so until a user of it needs the sum; linear operators pass it on.
class use_plans : public value_forms {
 public:
  using value_forms::value_forms;

 protected:
  /// One way to run an operator: which axes split which factors, and the shardings that this asks of its tensors.
  struct use_plan {
    factor_splits uses;
    inline_vec<sharding, max_map_arity> wanted;  // by operand
    sharding result;
  };

  [[nodiscard]] constexpr use_plan plan_of(const node& n, const op_rule& rule, const factor_splits& uses,
                                           const inline_vec<sharding, max_map_arity>& held) const {
    use_plan p;
    p.uses = uses;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      s.splits = to_dims(mesh_, rule, rule.operand(k), uses);
      p.wanted.push_back(s);
    }
    p.result.splits = to_dims(mesh_, rule, rule.result(), uses);
    p.result.kind = rule.kind;
    for (const auto& use : uses)
      if (rule.factors[use.dim].kind == factor_kind::reduction) p.result.partial |= axis_bit(use.axis);
    pass_partial(n, uses, held, p.wanted, p.result);
    return p;
  }

  /// True when the operator cannot keep a split that its operand was to have, whatever it would cost.
  [[nodiscard]] constexpr bool loses_a_split(const node& n, const op_rule& rule, int k, const sharding& wanted) const {
    return (completed_of(n.operands[k]).split_axes() & ~wanted.split_axes()) != 0 && must_lose_a_split(n, rule, k);
  }
  [[nodiscard]] constexpr bool must_lose_a_split(const node& n, const op_rule& rule, int k) const {
    const sharding& had = completed_of(n.operands[k]);
    if (rule.uniform || had.splits.empty()) return false;
    const use_search::wishes none;
    const use_search search(mesh_, rule, none);
    const auto kept = to_dims(mesh_, rule, rule.operand(k), search.legal(to_factors(mesh_, rule, rule.operand(k), had.splits)));
    return !(kept == had.splits);
  }

  /// Lets operands stay partial where the operator is linear in them and the sum is no smaller before than after it.
  /// `held`: the forms of operands that are partial.
  constexpr void pass_partial(const node& n, const factor_splits& uses, const inline_vec<sharding, max_map_arity>& held,
                              inline_vec<sharding, max_map_arity>& wanted, sharding& result) const {
    axis_mask used = 0;
    for (const auto& use : uses) used |= axis_bit(use.axis);
    for (int k = 0; k < n.operands.count; ++k) {
      const axis_mask axes = held[k].partial;
      const monoid kind = held[k].kind;
      if (axes == 0 || (axes & used) != 0) continue;
      if (result.partial != 0 && result.kind != kind) continue;
      const auto how = facts_of(n.op).partial(n, k, kind);
      if (how == partial_rule::any) {
        if ((result.partial & axes) != 0) continue;
        bool needed_whole = false;  // x * x needs the sum of x anyway
        for (int o = 0; o < n.operands.count; ++o) needed_whole = needed_whole || (o != k && n.operands[o] == n.operands[k]);
        if (needed_whole) continue;
        const auto before = local_elements(mesh_, shape_of(n.operands[k]), wanted[k]);
        const auto after = local_elements(mesh_, n.shape, result);
        if (after > before) continue;
        // No smaller: somebody else may need the whole value, and then it would be reduced twice.
        if (after == before && readers_[static_cast<std::size_t>(n.operands[k])].size() > 1) continue;
        wanted[k].partial = axes;
        wanted[k].kind = kind;
        result.partial |= axes;
        result.kind = kind;
        return;  // a product may be partial in one operand only
      }
      if (how == partial_rule::all) {
        bool alike = true;
        for (int o = 0; o < n.operands.count; ++o)
          alike =
              alike && held[o].partial == axes && held[o].kind == kind && facts_of(n.op).partial(n, o, kind) == partial_rule::all;
        if (!alike) continue;
        for (int o = 0; o < n.operands.count; ++o) {
          wanted[o].partial = axes;
          wanted[o].kind = kind;
        }
        result.partial |= axes;
        result.kind = kind;
        return;
      }
    }
  }

  /// By operand: its form, if the only ones it has are partial.
  [[nodiscard]] constexpr inline_vec<sharding, max_map_arity> held_partial(const node& n) const {
    inline_vec<sharding, max_map_arity> held;
    for (int k = 0; k < n.operands.count; ++k) {
      sharding s;
      const auto& forms = forms_of(n.operands[k]);
      bool has_whole = forms.empty() || level_of(n.operands[k]) < static_cast<int>(open_.size());  // reduced before the loop
      for (const int v : forms) has_whole = has_whole || program.value(v).layout.partial == 0;
      if (!has_whole) s = program.value(forms.back()).layout;
      held.push_back(s);
    }
    return held;
  }
};

}  // namespace gspmd::detail
