// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/passes/choose/choose.hpp"
#include "gspmd/detail/passes/choose/free_values.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// The rules for whole plans, in the order of their use. A program gets the best plan.
enum class plan_rule : std::uint8_t {
  completed,         // the shardings of completion, narrowed (narrow.hpp)
  as_written,        // the same, but no reshard is deferred: other users may need the resharded value
  replicated,        // free values are not split
  as_first_operand,  // free values are sharded like the first operand of their operator
  as_last_operand,   // or like the last operand, so that `b + a` gets the plan of `a + b`
  as_reader,         // or like the result of the operator that reads them
  not_narrowed,      // or as completion found them, not narrowed
  shared_out,        // or, if unsplit, over all unused axes, so that each device makes one part
  as_made,           // or as the best plan so far makes them; values that are computed from them follow
  as_other_operand,  // or like the operand that completion did not follow, if operands prefer one axis on different dims
  none
};

/// The progress of the choice among these plans. Another evaluation can continue from it.
struct whole_plans {
  struct lengths {
    choose_lengths best, trial;
    std::size_t preferred = 0, tried = 0;
  };
  choose_state best, trial;
  vec<sharding> preferred, tried;  // by node: the shardings that they prefer; empty: those of completion, narrowed
  plan_rule rule = plan_rule::completed;
  bool may_pay = false;   // the first plan leaves enough time to save for other plans
  bool is_trying = true;  // the plan of `rule` is being made
  bool is_complete = false;

  static constexpr auto lists(auto& s, auto f) {
    return choose_state::lists(s.best, [&](auto&... b) {
      return choose_state::lists(s.trial, [&](auto&... t) { return f(b..., t..., s.preferred, s.tried); });
    });
  }
  struct rest_members {
    choose_state::rest_members best, trial;
    plan_rule rule = plan_rule::completed;
    bool may_pay = false, is_trying = true, is_complete = false;
  };
  static constexpr auto rest(auto& s, auto f) {
    return choose_state::rest(s.best, [&](auto&... b) {
      return choose_state::rest(s.trial,
                                [&](auto&... t) { return f(b..., t..., s.rule, s.may_pay, s.is_trying, s.is_complete); });
    });
  }
};

/// Returns the time that another plan may save at most.
constexpr std::int64_t gainable(const choose_state& plan) { return plan.time - plan.least; }
/// Returns true if another plan may save enough time (support/tuning.hpp). Returns false if the program has
/// forbid_reshard or a gather limit, because the rules ignore these policies.
constexpr bool is_worth_others(const graph& g, const choose_state& plan) {
  if (gainable(plan) < least_picoseconds_of_search) return false;
  for (const auto& n : g.nodes)
    if (n.forbid_reshard || n.gather_limit >= 0) return false;
  return true;
}

/// Makes the plan with the shardings of completion and, if it may pay, the plans of the other rules. Keeps the best
/// plan. A value without an annotation may get another sharding than completion proposes, because the best sharding for
/// one operator can be bad for the program.
///
/// Input: the shardings of completion. Result: whole_plans::best, and whole_plans::preferred with the shardings that it
/// prefers. Rule: a plan is better if it takes less time and has no more forced gathers and broken policies.
class plan_chooser {
 public:
  /// `completed`: the shardings of completion. `asked`: the same, narrowed.
  constexpr plan_chooser(const graph& g, const mesh_shape& mesh, const plan_request& request, const value_uses& uses,
                         span<const sharding> completed, span<const sharding> asked, whole_plans& state)
      : graph_(g), mesh_(mesh), request_(request), uses_(uses), completed_(completed), asked_(asked), state_(state) {}

  /// Continues until the best plan is known, or until `most_nodes` choices were made or `most_prices` prices were
  /// computed.
  constexpr void run(int most_nodes, int most_prices) {
    while (!state_.is_complete) {
      if (!state_.is_trying) {
        begin_next();
        most_nodes -= count() / 8;  // begin_next examines all nodes
        if (most_nodes <= 0) return;
        continue;
      }
      const bool is_first = state_.rule == plan_rule::completed;
      choose_state& plan = is_first ? state_.best : state_.trial;
      chooser choices(graph_, mesh_, request_, uses_,
                      is_first ? asked_ : span<const sharding>(state_.tried.data(), state_.tried.size()), plan);
      choices.run(most_nodes, most_prices, is_first ? nullptr : &state_.best);
      most_nodes -= choices.chosen();
      most_prices -= choices.prices();
      const bool is_better = is_first || plan.is_better_than(state_.best);
      if (is_better && !plan.is_complete) return;
      if (is_first) {
        state_.may_pay = is_worth_others(graph_, plan);
      } else if (is_better) {
        if (state_.rule == plan_rule::as_other_operand ||
            (state_.rule == plan_rule::as_made && plan.time < state_.best.time - state_.best.time / 64))
          state_.rule = plan_rule::shared_out;  // as_made is tried again, on this plan
        std::swap(state_.best, state_.trial);
        std::swap(state_.preferred, state_.tried);
      }
      state_.is_trying = false;
    }
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(graph_.nodes.size()); }

  /// Begins the plan of the next rule that applies. Skips the plan if it prefers the same shardings as the best plan.
  constexpr void begin_next() {
    do state_.rule = static_cast<plan_rule>(static_cast<int>(state_.rule) + 1);
    while (state_.rule != plan_rule::none && !is_tried(state_.rule));
    state_.is_complete = state_.rule == plan_rule::none;
    if (!state_.is_complete) {
      state_.tried = lying_by(state_.rule);
      state_.is_trying = state_.rule == plan_rule::as_written || !is_asked_for(state_.tried);
    }
    state_.trial = {};
    if (state_.is_trying) state_.trial = choose_state(graph_);
    state_.trial.table.as_written = state_.rule == plan_rule::as_written || state_.best.table.as_written;
    if (!state_.is_trying) state_.tried = {};
  }
  [[nodiscard]] constexpr bool is_tried(plan_rule rule) const {
    if (rule == plan_rule::none) return false;
    if (rule == plan_rule::replicated && gainable(state_.best) < least_picoseconds_of_replication) return false;
    if (rule >= plan_rule::as_made) return state_.may_pay && gainable(state_.best) > 0;
    if (rule != plan_rule::as_written)
      return count() <= most_values_for_alternatives && state_.may_pay && gainable(state_.best) > 0;
    bool is_any_deferred = false;
    for (const auto& n : graph_.nodes) is_any_deferred = is_any_deferred || n.deferred;
    return is_any_deferred && gainable(state_.best) > 0;
  }

  /// Returns the preferred shardings of all values by a rule.
  [[nodiscard]] constexpr vec<sharding> lying_by(plan_rule rule) const {
    vec<sharding> lies(asked_.data(), asked_.data() + asked_.size());
    if (rule == plan_rule::as_written) return lies;
    if (rule == plan_rule::as_made) return lying_as_made();
    if (rule == plan_rule::as_other_operand) return lying_as_other_operand();
    for (int k = 0; k < count(); ++k) {
      const int i = rule == plan_rule::as_reader ? count() - 1 - k : k;
      const bool is_result = rule == plan_rule::as_last_operand && is_open_result(i);
      if (!is_free(graph_, uses_, i) && !is_result) continue;
      if (rule == plan_rule::replicated) lies[i].splits.clear();
      else if (rule == plan_rule::as_first_operand) lies[i].splits = to_result(i, 0, lies[at(i).operands[0]].splits);
      else if (rule == plan_rule::as_last_operand)
        lies[i].splits = to_result(i, at(i).operands.count - 1, lies[at(i).operands[at(i).operands.count - 1]].splits);
      else if (rule == plan_rule::as_reader) lies[i].splits = as_reader(i, lies);
      else if (rule == plan_rule::not_narrowed) lies[i].splits = completed_[static_cast<std::size_t>(i)].splits;
      else if (lies[i].splits.empty()) lies[i].splits = split_further(mesh_, at(i), {});
    }
    return lies;
  }
  /// Returns true if node `i` is an output without an annotation and without other users, made by an elementwise
  /// operator of several operands. It may have the sharding of any operand.
  [[nodiscard]] constexpr bool is_open_result(int i) const {
    return is_mere_output(i) && at(i).operands.count > 1 && facts_of(at(i).op).uniform;
  }
  /// Returns true if node `i` is an output without an annotation and without other users, not elementwise, and unsplit
  /// by completion. It may keep the sharding of its making.
  [[nodiscard]] constexpr bool is_unreached_result(int i) const {
    return is_mere_output(i) && !facts_of(at(i).op).uniform && completed_[static_cast<std::size_t>(i)].splits.empty();
  }
  [[nodiscard]] constexpr bool is_mere_output(int i) const {
    const auto readers = uses_.readers(i);
    const node& n = at(i);
    return readers.size() == 1 && readers[0] == i && !n.annotated && n.results == 1 && n.region < 0 &&
           facts_of(n.op).made == origin::shards;
  }
  /// Returns the shardings of as_other_operand. Example: one axis splits activations by tokens and weights by features.
  /// The product is then split by features, and so are its users.
  [[nodiscard]] constexpr vec<sharding> lying_as_other_operand() const {
    vec<sharding> lies(asked_.data(), asked_.data() + asked_.size());
    bool is_any_moved = false;
    for (int i = 0; i < count(); ++i) {
      if (!is_free(graph_, uses_, i) || facts_of(at(i).op).made != origin::shards) continue;
      if (is_any_moved) lies[i].splits = as_changed_operands(i, lies, asked_.data(), lies[i].splits);
      if (at(i).operands.count < 2 || facts_of(at(i).op).uniform) continue;
      axis_mask one = 0, several = 0;  // axes that split an operand, or several operands
      for (const int o : at(i).operands) {
        several |= one & lies[o].split_axes();
        one |= lies[o].split_axes();
      }
      if ((several & lies[i].split_axes()) == 0) continue;
      axis_mask wanted = 0, wanted_else = 0;  // axes that operands prefer on the present dim, and on another dim
      sharding other;
      for (int k = 0; k < at(i).operands.count; ++k)
        for (const auto& use : to_result(i, k, lies[at(i).operands[k]].splits)) {
          bool is_there = false;
          for (const auto& now : lies[i].splits) is_there = is_there || now == use;
          (is_there ? wanted : wanted_else) |= axis_bit(use.axis);
          if (!is_there && (other.split_axes() & axis_bit(use.axis)) == 0) other.add_split(use.axis, use.dim);
        }
      const axis_mask moved = wanted & wanted_else;
      if (moved == 0) continue;
      is_any_moved = true;
      sharding settled;
      for (const auto& use : lies[i].splits)
        if ((moved & axis_bit(use.axis)) == 0) settled.add_split(use.axis, use.dim);
      for (const auto& use : other.splits)
        if ((moved & axis_bit(use.axis)) != 0) settled.add_split(use.axis, use.dim);
      lies[i].splits = settled.splits;
    }
    return lies;
  }
  /// Returns the shardings of as_made. If the best plan makes a value by the same axes on other dims than preferred,
  /// the value now prefers this sharding. Its users follow on the dims that they share with it. The choice for a single
  /// operator does not find this plan: there, the users of the value pay for the difference.
  [[nodiscard]] constexpr vec<sharding> lying_as_made() const {
    vec<sharding> lies(by_best(), by_best() + count());
    for (int i = 0; i < count(); ++i) {
      const node& n = at(i);
      const sharding& made = state_.best.table.nodes[i].result;
      if (is_unreached_result(i) && made.partial == 0) lies[i].splits = made.splits;
      if (!is_free(graph_, uses_, i) || facts_of(n.op).made != origin::shards) continue;
      auto splits = lies[i].splits;
      if (made.partial == 0 && made.split_axes() == lies[i].split_axes()) splits = made.splits;
      lies[i].splits = as_changed_operands(i, lies, by_best(), splits);
    }
    for (int i = 0; i < count() && graph_.has_regions && request_.saving == 0; ++i) lie_as_added(i, lies);
    return lies;
  }
  /// Returns the splits of node `i`, by default `splits`. If an operand differs from `before` and the same axes split
  /// the result, the result follows the operand.
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> as_changed_operands(int i, const vec<sharding>& lies,
                                                                             const sharding* before,
                                                                             inline_vec<axis_use, max_axes> splits) const {
    for (int k = at(i).operands.count; k-- > 0;) {
      const int o = at(i).operands[k];
      if (lies[o] == before[o]) continue;
      sharding likewise;
      likewise.splits = to_result(i, k, lies[o].splits);
      if (likewise.split_axes() == lies[i].split_axes()) splits = likewise.splits;
    }
    return splits;
  }
  /// Gives a loop's sum the sharding of its terms, if the terms are partial. The sum is then reduced and split after
  /// the loop. Each device then holds a partial sum with all elements. If the mesh limits the memory, every iteration
  /// splits the sum instead.
  constexpr void lie_as_added(int i, vec<sharding>& lies) const {
    const int k = operand_summed_up(graph_, uses_, i);
    if (k < 0 || at(i).annotated || at(at(i).operands[k]).annotated) return;
    inline_vec<int, 8> linear;  // linear operators between the term and the sum
    int added = at(i).operands[operand_added_to(at(i), k)];
    for (; linear_operand(at(added)) >= 0; added = at(added).operands[linear_operand(at(added))]) {
      if (at(added).annotated || linear.count == linear.capacity) return;
      if (at(added).op != opcode::loop_result) linear.push_back(added);
    }
    sharding made = partial_result(at(added), lies);
    if (made.partial == 0) made = state_.best.table.nodes[added].result;
    if (made.partial == 0) return;
    const auto splits = to_result(i, operand_added_to(at(i), k), made.splits);
    lies[i].splits = lies[at(i).operands[k]].splits = splits;
    for (const int x : linear) lies[x].splits = made.splits;
  }
  /// Returns the sharding of an operator's result if its operands have the shardings `lies`. Axes of reduction factors
  /// leave the result partial.
  [[nodiscard]] constexpr sharding partial_result(const node& n, const vec<sharding>& lies) const {
    sharding made;
    if (facts_of(n.op).made != origin::shards || facts_of(n.op).uniform) return made;
    op_rule rule;
    rule_of(graph_, n, rule);
    factor_splits kept;
    for (int o = 0; o < n.operands.count; ++o)
      for (const auto& use : to_factors(mesh_, rule, rule.operand(o), lies[n.operands[o]].splits)) {
        bool is_known = (made.partial & axis_bit(use.axis)) != 0;
        for (const auto& known : kept) is_known = is_known || known.axis == use.axis;
        if (is_known) continue;
        if (rule.leaves_partial(use.dim)) made.partial |= axis_bit(use.axis);
        else if (rule.factors[use.dim].kind != factor_kind::whole) add_factor_split(kept, use.axis, use.dim);
      }
    made.splits = to_dims(mesh_, rule, rule.result(), kept);
    return made;
  }
  /// Returns the number of the operand of an elementwise operator that may be reduced after the operator; -1 if no
  /// operand qualifies. A loop's result counts as linear in the carried value.
  [[nodiscard]] constexpr int linear_operand(const node& n) const {
    if (n.op == opcode::loop_result || shared_sums::is_sum_of_two(n)) return 0;
    return facts_of(n.op).uniform ? shared_sums::scaled_operand(graph_, n) : -1;
  }
  /// Returns the splits of the result of node `i` that correspond to `splits` of its operand `k`.
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> to_result(int i, int k,
                                                                   const inline_vec<axis_use, max_axes>& splits) const {
    op_rule rule;
    rule_of(graph_, at(i), rule);
    return carried(mesh_, rule, rule.operand(k), splits, rule.result());
  }
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> as_reader(int i, const vec<sharding>& lies) const {
    const int reader = uses_.readers(i)[0];
    const node& n = at(reader);
    op_rule rule;
    rule_of(graph_, n, rule);
    int operand = 0;
    while (n.operands[operand] != i) ++operand;
    return carried(mesh_, rule, rule.result(), lies[reader].splits, rule.operand(operand));
  }
  /// Returns true if the best plan prefers the same shardings.
  [[nodiscard]] constexpr bool is_asked_for(const vec<sharding>& lies) const {
    for (int i = 0; i < count(); ++i)
      if (lies[i] != by_best()[i]) return false;
    return true;
  }
  /// Returns the shardings that the best plan prefers, by node.
  [[nodiscard]] constexpr const sharding* by_best() const {
    return state_.preferred.empty() ? asked_.data() : state_.preferred.data();
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  const plan_request& request_;
  const value_uses& uses_;
  span<const sharding> completed_, asked_;
  whole_plans& state_;
};

}  // namespace gspmd::detail
