// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/loop_sums.hpp"
#include "gspmd/detail/passes/choose/use_search.hpp"

namespace gspmd::detail {

using operand_shardings = inline_vec<sharding, max_map_arity>;

/// One way to run an operator: the axes that split the factors of its rule, and the shardings that this requires of its
/// tensors.
struct operator_use {
  factor_splits uses;
  operand_shardings wanted;
  sharding result;
  bool moved = false;  // a movement replaces the operator: the rule need not connect the shardings
};

/// Returns true if one device has the value of node `i` and the others have zeros, as after a lookup. Then a product
/// must not use the partial values, because 0 times infinity is not 0.
constexpr bool is_looked_up(const form_prices& known, int i) {
  const auto& roots = known.book.roots;
  for (i = roots[i]; known.at(i).operands.count == 1;) i = roots[known.at(i).operands[0]];
  op_rule rule;
  if (known.at(i).operands.count > 0) rule_of(known.program, known.at(i), rule);
  for (const auto& f : rule.factors)
    if (f.kind == factor_kind::indexed) return true;
  return false;
}

/// Returns true if all operands are outputs, which are reduced anyway. A result that is partial like them would need
/// one more reduction.
constexpr bool are_reduced_anyway(const form_prices& known, const node& n) {
  if (known.program.is_explicit) return false;  // an explicit program may have partial outputs
  for (const int o : n.operands)
    if (known.readers_of(o).empty() || known.readers_of(o)[0] != o || known.at(o).keep_partial) return false;
  return true;
}
/// Lets operands of a linear operator stay partial if reducing the result costs no more than reducing the operand
/// (GSPMD 3.2). `held`: the forms of the operands that are partial, by operand.
///
///   y = 2 * x with x partial over model and no other user: y is partial over model, and x is not reduced
constexpr void pass_partial(const form_prices& known, const node& n, const operand_shardings& held, operator_use& p) {
  axis_mask used = 0;
  for (const auto& use : p.uses) used |= axis_bit(use.axis);
  for (int k = 0; k < n.operands.count; ++k) {
    const axis_mask axes = held[k].partial;
    const monoid kind = held[k].reduced_by;
    if (axes == 0 || (axes & used) != 0 || (p.result.partial != 0 && p.result.reduced_by != kind)) continue;
    const auto how = partial_rule_of(n, k, kind);
    if (how == partial_rule::any) {
      if ((p.result.partial & axes) != 0 || (n.operands.count > 1 && is_looked_up(known, n.operands[k]))) continue;
      bool needed_whole = false;  // x * x needs the reduced x anyway
      for (int o = 0; o < n.operands.count; ++o) needed_whole = needed_whole || (o != k && n.operands[o] == n.operands[k]);
      if (needed_whole) continue;
      const auto before = local_elements(known.mesh, known.shape_of(n.operands[k]), p.wanted[k]);
      const auto after = local_elements(known.mesh, n.shape, p.result);
      const bool is_kept = known.at(n.operands[k]).keep_partial;
      // If the sizes are equal and another user needs the reduced value, the value would be reduced twice.
      const bool is_shared = known.readers_of(n.operands[k]).size() > 1 && sum_of_loop(known, n.operands[k]).carry < 0;
      if (!is_kept && (after > before || (after == before && is_shared))) continue;
      p.wanted[k].partial = axes;
      p.wanted[k].reduced_by = kind;
    } else if (how == partial_rule::all) {
      bool alike = true;
      const auto selectors = facts_of(n.op).meets(n, kind).selectors;
      for (int o = 0; o < n.operands.count; ++o)
        alike = alike && ((selectors >> o & 1U) != 0 || (held[o].partial == axes && held[o].reduced_by == kind));
      if (!alike || are_reduced_anyway(known, n)) continue;
      for (int o = 0; o < n.operands.count; ++o) {
        if ((selectors >> o & 1U) != 0) continue;
        p.wanted[o].partial = axes;
        p.wanted[o].reduced_by = kind;
      }
    } else {
      continue;
    }
    p.result.partial |= axes;
    p.result.reduced_by = kind;
    return;  // only one operand of a product may be partial
  }
}

/// Returns the sharding of further result `r`.
constexpr sharding further_result(const mesh_shape& mesh, const op_rule& rule, const factor_splits& uses, int r) {
  sharding s;
  s.splits = to_dims(mesh, rule, rule.result(r), uses);
  for (const auto& use : uses)
    if (rule.leaves_partial(use.dim, r)) s.partial |= axis_bit(use.axis);
  if (s.partial != 0) s.reduced_by = rule.reduced_by;
  return s;
}

/// Returns the way to run an operator with these uses of the axes.
///
///   bd,df->bf, b over data, d over model: operands [data, model] and [model, _], result [data, _] partial(model: add)
constexpr operator_use use_of(const form_prices& known, const node& n, const op_rule& rule, const factor_splits& uses,
                              const operand_shardings& held) {
  operator_use p;
  p.uses = uses;
  for (int k = 0; k < n.operands.count; ++k) {
    sharding s;
    s.splits = to_dims(known.mesh, rule, rule.operand(k), uses);
    p.wanted.push_back(s);
  }
  p.result.splits = to_dims(known.mesh, rule, rule.result(), uses);
  for (const auto& use : uses)
    if (rule.leaves_partial(use.dim)) p.result.partial |= axis_bit(use.axis);
  if (p.result.partial != 0) p.result.reduced_by = rule.reduced_by;
  pass_partial(known, n, held, p);
  return p;
}

/// Returns true if no user of node `i`, or of its views, takes it as a partial sum. A value that leaves a loop or a
/// branch may be partial.
constexpr bool is_used_whole(const form_prices& known, int i, int steps = shared_sums::most_steps) {
  for (const int r : known.readers_of(i)) {
    const node& user = known.at(r);
    if (r == i || (shared_sums::is_view(user) && steps > 0 && is_used_whole(known, r, steps - 1))) continue;
    if (facts_of(user.op).made == origin::region) return false;
    for (int k = 0; k < user.operands.count; ++k)
      if (user.operands[k] == i && partial_rule_of(user, k, monoid::add) != partial_rule::none) return false;
  }
  return !known.at(i).keep_partial;
}
/// Returns true if node `i` is the quotient of a sum, and dividing partial sums gains nothing. Then the sum is reduced
/// first. This costs the same and is exact if the quotient is exact: a mean of equal numbers is that number on every
/// mesh.
constexpr bool divides_whole_sum(const form_prices& known, int i) {
  const node& n = known.at(i);
  if (known.program.is_explicit || facts_of(n.op).meets(n, monoid::add).takes != partial_class::first) return false;
  return !known.at(n.operands[0]).keep_partial && is_used_whole(known, i);
}

/// Returns by operand its last form if all of its forms are partial and node `i` may take it so. The other entries are
/// empty.
constexpr operand_shardings held_partial(const form_prices& known, int i) {
  const node& n = known.at(i);
  if (divides_whole_sum(known, i)) return operand_shardings(n.operands.count, sharding{});
  const form_book& book = known.book;
  operand_shardings held;
  for (int k = 0; k < n.operands.count; ++k) {
    const int o = n.operands[k];
    bool has_whole = !book.has_forms(o) || known.level_of(o) < book.depth();  // reduced before the loop
    for (int v = book.first_of(o); v >= 0; v = book.values[v].next) has_whole = has_whole || book.layout_of(v).partial == 0;
    held.push_back(has_whole ? sharding{} : book.layout_of(book.last_of(o)));
  }
  return held;
}

/// Returns true if `wanted` breaks the keep_split or keep_partial policy of operand `k`.
constexpr bool breaks_policy(const form_prices& known, const node& n, int k, const sharding& wanted, const sharding& held) {
  const int o = n.operands[k];
  const node& of = known.at(o);
  if (of.keep_split) {
    const int form = known.book.first_of(o);
    const bool is_as_made = form >= 0 && facts_of(of.op).made != origin::renamed;
    const sharding& lies = is_as_made ? known.book.layout_of(form) : known.preferred_of(o);
    if ((lies.split_axes() & ~wanted.split_axes()) != 0) return true;
  }
  if (!of.keep_partial || held.partial == 0 || wanted.partial != 0) return false;
  return partial_rule_of(n, k, held.reduced_by) == partial_rule::any;
}

/// Returns true if the operator can run with operand `k` in sharding `s`.
constexpr bool can_keep(const form_prices& known, const op_rule& rule, int k, const sharding& s) {
  const use_search search(known.mesh, known.net(), rule, use_search::no_preferences);
  const auto uses = search.legal(to_factors(known.mesh, rule, rule.operand(k), s.splits));
  return to_dims(known.mesh, rule, rule.operand(k), uses) == s.splits;
}
/// Returns true if the operator cannot keep a preferred split of operand `k`, at any cost.
constexpr bool must_lose_a_split(const form_prices& known, const node& n, const op_rule& rule, int k) {
  const sharding& had = known.preferred_of(n.operands[k]);
  return !rule.uniform && !had.splits.empty() && !can_keep(known, rule, k, had);
}
/// Returns the axes along which every user reads the value whole. Either an annotation requires this, or the axes split
/// another dim of the user's result.
constexpr axis_mask axes_read_whole(const form_prices& known, int i) {
  const auto asked_whole = [&](int v) {
    const node& n = known.at(v);
    return n.annotated && n.annotation.open == 0 ? ~known.preferred_of(v).split_axes() : 0;
  };
  axis_mask whole = ~axis_mask{0};
  for (const int reader : known.readers_of(i)) {
    const node& n = known.at(reader);
    if (reader == i || facts_of(n.op).uniform) {
      whole &= asked_whole(reader);
      continue;
    }
    op_rule rule;
    rule_of(known.program, n, rule);
    axis_mask used_else = 0;
    for (int k = 0; k < n.operands.count; ++k)
      if (n.operands[k] == i)
        for (const auto& use : to_factors(known.mesh, rule, rule.result(), known.preferred_of(reader).splits))
          if (!rule.operand(k).holds(use.dim)) used_else |= axis_bit(use.axis);
    whole &= used_else;
  }
  return whole | asked_whole(i);
}
/// Returns the axes that a view may gather its operand over without allow_replication. Operand and view have the same
/// number of elements, so a gather before the view makes the same number of elements as a gather after it.
constexpr axis_mask axes_gathered_anyway(const form_prices& known, int i) {
  const node& n = known.at(i);
  if (!may_be_moved(known.program, n) || known.preferred_of(n.operands[0]).splits.empty()) return 0;
  return axes_read_whole(known, i);
}
/// Returns the axes that no longer split operand `k` of node `i` because the operator cannot keep them together with
/// the axes that it keeps. Leaves out the axes that the operator could keep but gathers because that sends less, and
/// the axes that are gathered anyway.
constexpr axis_mask axes_lost(const form_prices& known, int i, const op_rule& rule, int k, const sharding& wanted) {
  const node& n = known.at(i);
  const sharding& had = known.preferred_of(n.operands[k]);
  axis_mask lost = had.split_axes() & ~wanted.split_axes();
  if (lost == 0 || !must_lose_a_split(known, n, rule, k)) return 0;
  lost &= ~axes_gathered_anyway(known, i);
  sharding kept = wanted;
  for (const auto& use : had.splits) {
    int first = 0;
    while (first < kept.splits.count && kept.splits[first].dim < use.dim) ++first;
    int last = first;
    while (last < kept.splits.count && kept.splits[last].dim == use.dim) ++last;
    for (const int at : {last, first}) {  // minor to the other axes of its dim, or major
      if ((lost & axis_bit(use.axis)) == 0) break;
      sharding beside = kept;
      beside.splits.insert(at, use);
      if (!can_keep(known, rule, k, beside)) continue;
      kept = beside;
      lost &= ~axis_bit(use.axis);
    }
  }
  return lost;
}
/// Returns true if operand `k` is split along an indexed factor. The operand is not gathered, although a gather may
/// send less.
constexpr bool is_looked_into(const form_prices& known, const node& n, const op_rule& rule, int k) {
  if (rule.uniform) return false;
  const tensor_map& map = rule.operand(k);
  for (int d = 0; d < map.first.count; ++d)
    for (int f = map.begin(d); f < map.end(d); ++f)
      if (rule.factors[map.factors[f]].kind == factor_kind::indexed && known.preferred_of(n.operands[k]).axes_of(d) != 0)
        return true;
  return false;
}

}  // namespace gspmd::detail
