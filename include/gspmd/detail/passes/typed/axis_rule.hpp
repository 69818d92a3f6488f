// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/mode_mistake.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/typed/value_type.hpp"

namespace gspmd::detail {

/// An operand on one axis.
struct operand_on_axis {
  axis_state is;
  std::int8_t factor =
      -1;  // the factor of the operator's rule that the axis splits; -1: none; -2: the rule has no factor for this split
  bool is_zero = false;        // every element is 0: valid as partial values of a sum
  bool is_positive = false;    // a number above 0: a product with it keeps the order
  std::uint64_t repeated = 0;  // the factors along which a broadcast repeats it: a replica is cut along them, and nothing is sent
};
using operands_on_axis = inline_vec<operand_on_axis, max_map_arity>;

/// The state of a result on one axis, or the reason why it has none.
struct axis_result {
  axis_state is;
  std::int8_t factor = -1;  // the factor that the axis splits
  mode_mistake broken = mode_mistake::none;
  int operand = -1;
};

/// The rule of one axis. The states of the operands must be compatible. In the global view, all operands that have the
/// split factor must be split along that factor. A constant, which every device has, is cut to match.
///
/// If a broadcast repeats a replica along a dim, the replica is cut along that dim too. An example is a bias that is
/// added to rows. Its gradient is then partial.
///
///   `ab,bc->ac`   x S(a), w R -> S(a)     x S(b), w S(b) -> P
///                 x S(b), w R: refused    x S(a), w I: refused, because of the gradient
class axis_rule {
 public:
  /// `cuts_replicas`: in a gradient, replicas are cut along all their dims. Elsewhere the user writes this cut, which
  /// sends nothing forward or backward.
  constexpr axis_rule(const node& n, const op_rule* rule, bool cuts_replicas)
      : node_(n), rule_(rule), cuts_replicas_(cuts_replicas) {}

  [[nodiscard]] constexpr axis_result of(const operands_on_axis& in, int result = 0) const {
    monoid kind = monoid::add;
    bool any_partial = false;
    inline_vec<state, max_map_arity> kinds;
    for (int k = 0; k < in.count; ++k) {
      kinds.push_back(in[k].is.is);
      if (in[k].is.is != state::partial) continue;
      if (any_partial && in[k].is.reduced_by != kind) return {{}, -1, mode_mistake::partial_nonlinear, k};
      any_partial = true;
      kind = in[k].is.reduced_by;
    }
    operator_class c = facts_of(node_.op).meets(node_, kind);
    if (c.takes == partial_class::scaled || c.takes == partial_class::quotient) {
      int others = 0;  // operands that are no numbers above 0
      for (int k = 0; k < in.count; ++k) others += in[k].is_positive ? 0 : 1;
      const bool are_positive = others == 1 && (c.takes == partial_class::scaled || in[0].is.is == state::partial);
      c.takes = !are_positive                      ? partial_class::none
                : c.takes == partial_class::scaled ? partial_class::one
                                                   : partial_class::first;
    }
    if (any_partial && kind == monoid::add && c.takes == partial_class::all)
      for (int k = 0; k < in.count; ++k)
        if (in[k].is_zero && kinds[k] == state::constant && (c.selectors >> k & 1U) == 0) kinds[k] = state::partial;
    meeting met = meet(c, {kinds.begin(), static_cast<std::size_t>(kinds.count)});
    if (rule_ == nullptr && node_.in_gradient && any_partial && c.takes == partial_class::all && met.broken != conflict::none) {
      for (int k = 0; k < kinds.count; ++k)  // in the local view: all are partial values of one gradient
        if (is_of_each(kinds[k]) && (c.selectors >> k & 1U) == 0) kinds[k] = state::partial;
      met = meet(c, {kinds.begin(), static_cast<std::size_t>(kinds.count)});
    }
    if (met.broken != conflict::none) return {{}, -1, kind_of(met.broken), met.operand};
    axis_result r;
    r.is.is = met.result;
    r.is.reduced_by = c.turns_order && kind == monoid::max   ? monoid::min
                      : c.turns_order && kind == monoid::min ? monoid::max
                                                             : kind;
    if (rule_ != nullptr) split(in, result, r);
    if (c.detaches) r.is = without_gradient(r.is);
    return r;
  }
  [[nodiscard]] constexpr bool has(int k, int f) const { return rule_->uniform || rule_->operand(k).holds(f); }

 private:
  static constexpr bool is_of_each(state s) { return s == state::varying || s == state::shard || s == state::constant; }
  constexpr void split(const operands_on_axis& in, int result, axis_result& r) const {
    int first = -1;
    for (int k = 0; k < in.count && first < 0; ++k)
      if (in[k].is.is == state::shard) first = k;
    if (first < 0) return;
    const int f = in[first].factor;
    const auto refuse = [&](mode_mistake m, int k) {
      r.broken = m;
      r.operand = k;
    };
    for (int k = 0; k < in.count; ++k) {
      const bool is_split = in[k].is.is == state::shard;
      if (is_split && in[k].factor == -2) return refuse(mode_mistake::needs_communication, k);
      if (is_split && in[k].factor != f) {
        const bool disagree = has(k, f) || has(first, in[k].factor);
        return refuse(disagree ? difference(has(k, f) ? f : in[k].factor) : mode_mistake::axis_used_twice, k);
      }
      const bool is_free = cuts_replicas_ || (f >= 0 && (in[k].repeated >> f & 1U) != 0);
      const bool is_cut = in[k].is.is == state::constant || (is_free && in[k].is.is == state::replica);
      if (!is_split && has(k, f) && !is_cut) return refuse(difference(f), k);
    }
    r.factor = static_cast<std::int8_t>(f);
    const auto kind = rule_->factors[f].kind;
    if (kind == factor_kind::whole || kind == factor_kind::exchanged) return refuse(mode_mistake::op_on_whole_dim, first);
    if (rule_->leaves_partial(f, result)) {
      r.is = partial_by(rule_->reduced_by);
      return;
    }
    const tensor_map& map = rule_->result(result);
    for (int d = 0; d < map.first.count; ++d)
      for (int at = map.begin(d); at < map.end(d); ++at)
        if (map.factors[at] == f) r.is = shard_of(d);
    if (r.is.is != state::shard || (facts_of(node_.op).exchanges(node_) & dim_bit(r.is.dim)) != 0)
      return refuse(mode_mistake::op_on_whole_dim, first);
  }
  [[nodiscard]] constexpr mode_mistake difference(int f) const {
    if (rule_->uniform) return mode_mistake::elementwise_conflict;
    return rule_->leaves_partial(f) ? mode_mistake::ambiguous_contraction : mode_mistake::batch_mismatch;
  }

  const node& node_;
  const op_rule* rule_;  // null: the local view, whose dims belong to one device
  bool cuts_replicas_;
};

}  // namespace gspmd::detail
