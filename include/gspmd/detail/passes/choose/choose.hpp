// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/passes/choose/form_walk.hpp"
#include "gspmd/detail/passes/choose/operator_chooser.hpp"
#include "gspmd/detail/passes/choose/replay.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Chooses the shardings of the operands and results of each operator, in program order (GSPMD 4.1-4.5).
///
/// Input: the graph, the mesh with its network, and the preferred sharding of every value. Result: `state`, with the
/// choice for every node, the forms of every value and the estimated time. This class emits nothing.
///
/// 1. Each mesh axis is assigned to one factor of the operator's rule, or to none. The joint assignment of all axes
///    takes the least time on the mesh's network: for the operands, for the result and for the work of one device. Ties
///    are broken by fewer bytes, then by fewer collectives, then by smaller shards.
/// 2. Each operand is brought to the sharding that the assignment requires, from the cheapest form that exists already.
/// 3. The operator runs on shards. Axes that are assigned to a reduction factor leave the result partial.
/// 4. A partial result stays partial until one of its users needs the reduced value. Linear operators pass partial
///    values on.
/// 5. If an einsum has a gather limit, an operand that would exceed the limit rotates around a ring in parts
///    (ring_choice.hpp).
///
///   bd,df->bf with x [data, _], w [_, model]: b over data, f over model; result [data, model], nothing is sent
///             with x [_, model], w [model, _]: d over model; result [_, _] partial(model: add), if a gather takes
///             longer
class chooser {
 public:
  constexpr chooser(const graph& g, const mesh_shape& mesh, const plan_request& request, const value_uses& uses,
                    span<const sharding> preferred, choose_state& state, replay* known = nullptr)
      : known_{g, mesh, request, uses, preferred, state.book},
        state_(state),
        operators_(known_, readers_),
        walk_(g, mesh, request.saving, state.book, state.given, *this),
        replay_(known) {
    state.book.as_written = state.table.as_written;
  }

  /// Chooses for the remaining items: the nodes, then the outputs. Stops after `most_nodes` choices or `most_prices`
  /// computed prices; another call continues. Never stops between the results of one operator. Eight replayed items
  /// count as one choice (replay::choice). Also stops as soon as the plan is certainly no better than `rival`, or than
  /// the replayed plan.
  constexpr void run(int most_nodes, int most_prices, const choose_state* rival = nullptr) {
    const graph& g = known_.program;
    const int count = static_cast<int>(g.nodes.size());
    const int items = count + static_cast<int>(g.outputs.size());
    for (int work = 0; state_.next < items; work += is_replayed_ ? 1 : replay::choice) {
      if ((work / replay::choice >= most_nodes || operators_.prices >= most_prices) &&
          (state_.next >= count || known_.at(state_.next).op != opcode::result))
        return;
      count_planning();
      const int i = state_.next++;
      state_.marks.push_back(state_.mark());
      is_replayed_ = replay_ != nullptr && replay_->is_same(known_, i);
      is_replayed_ ? ++replayed_ : ++chosen_;
      path_ = is_replayed_ ? replay_->plan.marks[i].paths : 0;
      look_at(i);
      if (is_replayed_) {
        state_.time = add_times(state_.marks[i].time, replay_->time_of(i));
        state_.least = add_times(state_.marks[i].least, replay_->least_of(i));
      }
      if (replay_ != nullptr && replay_->is_decided(known_, i, state_)) return;
      if (rival != nullptr && !state_.is_better_than(*rival)) return;
    }
    state_.marks.push_back(state_.mark());
    state_.is_complete = true;
  }
  /// Returns the number of items that were chosen. `replayed` returns the number of items that were copied from the
  /// replayed plan.
  [[nodiscard]] constexpr int chosen() const { return chosen_; }
  [[nodiscard]] constexpr int replayed() const { return replayed_; }

  // ---- the client interface of form_walk ----
  /// Returns the sharding of node `i` if no operator is chosen for it. A further result takes the sharding that its
  /// operator chose. A result of a conditional stays partial if the other branch gives zero and a loop only adds the
  /// result to a sum.
  [[nodiscard]] constexpr sharding layout_of(int i) const {
    const node& n = known_.at(i);
    const origin made = facts_of(n.op).made;
    if (made == origin::result && known_.uses.needed[i] != 0) return further_[i - n.operands[0] - 1];
    sharding s = known_.preferred_of(i);
    if (made == origin::region && !known_.program.is_explicit && fixed_ == nullptr) s.partial = 0;
    if (const int k = operand_or_zero(known_.program, n); k >= 0 && s.partial == 0 && is_partial(n.operands[k], s.splits))
      if (const loop_sum sum = sum_of_loop(known_, i); sum.carry >= 0 && sum.splits == s.splits)
        return state_.book.layout_of(state_.book.last_of(n.operands[k]));
    return s;
  }
  constexpr const node_choice& choice_for(int i) { return is_replayed_ ? choose_again(i) : choose(i); }
  constexpr const sharding& wanted(int i, int k) const { return state_.table.wanted[state_.table.nodes[i].wanted + k]; }
  constexpr reshard_path next_path(int i, const sharding& wanted) {
    if (is_replayed_) return path_again();
    if (!known_.has_hidden_axes(i)) return found_path(known_, i, wanted);
    return found_path(known_.inside(i, known_.mesh_of(i)), i, wanted);
  }
  constexpr const reshard_step& step(const reshard_path& way, int k) const { return state_.table.steps[way.step + k]; }
  // The functions below do nothing here. emit makes the values.
  constexpr void input(int, int) {}
  constexpr void renamed(int, int) {}
  constexpr void named(int, int) {}
  constexpr void made_with_last(int, int) {}
  constexpr void made(int, int, int, int) {}
  constexpr void moved(const purpose&, int form, const reshard_step& step, int, int level) {
    if (is_replayed_) return;
    const auto& from = state_.book.values[form];
    const node& n = known_.at(from.node);
    const auto note = [&](const mesh_shape& mesh) {
      const auto bytes = step_bytes(mesh, n.shape, from.layout, step, bytes_of(n.type));
      add_time(step_time(mesh, known_.net(), n.shape, from.layout, step, bytes), level);
    };
    known_.has_hidden_axes(from.node) ? note(known_.mesh_of(from.node)) : note(known_.mesh);
  }
  constexpr void ran(int, const node_choice&, const inline_vec<int, max_map_arity>&, int) {}
  constexpr void ran_movement(int, int, int, int, int) {}
  constexpr void copied(int, int, int) {}
  constexpr void opens(int, int, int) {}
  constexpr void ends(int) {}
  constexpr void closes() {}

  /// Returns true if the walk visits node `i`: an output needs it, or it is an input.
  static constexpr bool is_visited(const graph& g, const value_uses& uses, int i) {
    return uses.needed[i] != 0 || facts_of(g.nodes[static_cast<std::size_t>(i)].op).made == origin::given;
  }

  [[nodiscard]] constexpr int prices() const { return operators_.prices; }
  /// Sets by node the way to run its operator, instead of a choice. Null: the operator is chosen.
  constexpr void fix(const operator_use* const* ways) { fixed_ = ways; }
  /// Records in `ways` every way to run the operators that are chosen from here on (see operator_chooser).
  constexpr void record(vec<tried_use>* ways) { operators_.record = ways; }

 private:
  constexpr reshard_path found_path(const form_prices& known, int i, const sharding& wanted) {
    reshard_path way{known.best_form(i, wanted).value, static_cast<int>(state_.table.steps.size()), 0};
    if (way.from >= 0)
      for_each_step(known.mesh, known.net(), known.shape_of(i), state_.book.layout_of(way.from), wanted,
                    bytes_of(known.at(i).type), [&](const sharding&, const reshard_step& step) {
                      state_.table.steps.push_back(step);
                      ++way.steps;
                    });
    state_.table.paths.push_back(way);
    return way;
  }
  constexpr void look_at(int i) {
    const graph& g = known_.program;
    const int count = static_cast<int>(g.nodes.size());
    if (i >= count) {
      const int o = g.outputs[static_cast<std::size_t>(i - count)];
      sharding whole = known_.preferred_of(o);
      if (!g.is_explicit) whole.partial = 0;
      state_.table.outputs.push_back(whole);
      walk_.bring(o, whole, {o, 0, true});
      return;
    }
    state_.table.nodes.push_back({layout_of(i), 0, 0, 0, {}, false});
    if (is_visited(g, known_.uses, i)) walk_.visit(i);
    if (known_.at(i).op == opcode::cond_result && state_.book.has_forms(i))
      state_.table.nodes[i].result = state_.book.layout_of(state_.book.first_of(i));
  }
  constexpr reshard_path path_again() {
    const choice_table& from = replay_->plan.table;
    const reshard_path& known = from.paths[path_++];
    const int i = state_.next - 1, of_this = known.from - replay_->plan.marks[i].values;
    const int form = of_this >= 0 ? state_.marks[i].values + of_this : known.from < 0 ? -1 : replay_->differs.now[known.from];
    reshard_path way{form, static_cast<int>(state_.table.steps.size()), known.steps};
    for (int k = 0; k < known.steps; ++k) state_.table.steps.push_back(from.steps[known.step + k]);
    state_.table.paths.push_back(way);
    return way;
  }
  constexpr const node_choice& choose_again(int i) {
    const choice_table& from = replay_->plan.table;
    node_choice& choice = state_.table.nodes[i];
    choice = from.nodes[i];
    choice.wanted = static_cast<int>(state_.table.wanted.size());
    const int begin = from.nodes[i].wanted;
    for (int k = 0; k < known_.at(i).operands.count; ++k) state_.table.wanted.push_back(from.wanted[begin + k]);
    state_.forced += replay_->plan.marks[i + 1].forced - replay_->plan.marks[i].forced;
    return choice;
  }

  constexpr void add_time(std::int64_t time, int level) {
    state_.time = add_times(state_.time, known_.time_in_all_trips(time, level));
  }

  constexpr const node_choice& choose(int i) {
    if (!known_.has_hidden_axes(i) || facts_of(known_.at(i).op).made == origin::viewed) return choose(known_, operators_, i);
    const mesh_shape visible = known_.mesh_of(i);
    const form_prices inside = known_.inside(i, visible);
    operator_chooser its_chooser(inside, readers_);
    its_chooser.record = operators_.record;
    const node_choice& choice = choose(inside, its_chooser, i);
    operators_.prices += its_chooser.prices;
    return choice;
  }
  constexpr const node_choice& choose(const form_prices& known, operator_chooser& of_operators, int i) {
    const node& n = known.at(i);
    op_rule rule;
    rule_of(known.program, n, rule);
    const bool is_border = facts_of(n.op).made == origin::viewed;
    const bool is_typed = known.program.is_explicit || ((n.local_axes != 0 || is_border) && n.annotation.closed == 0);
    operator_use use = is_typed                                    ? typed_use(i, n, rule)
                       : is_border                                 ? border_use(i, n, rule)
                       : fixed_ != nullptr && fixed_[i] != nullptr ? *fixed_[i]
                                                                   : choose_with_sums(of_operators, i, n, rule);
    node_choice& choice = state_.table.nodes[i];
    choice.result = use.result;
    choice.moved = use.moved;
    further_.clear();
    for (int r = 1; r < n.results; ++r) further_.push_back(further_result(known.mesh, rule, use.uses, r));
    if (gather_limit_of(known.request, n) >= 0) {
      const auto round = ring_choice(known, n, use).find();
      choice.ring = round.how;
      if (round.how.operand >= 0) use.wanted[round.how.operand] = round.form;
    }
    choice.wanted = static_cast<int>(state_.table.wanted.size());
    bool is_any_kept = false;
    for (const int o : n.operands) is_any_kept = is_any_kept || known.at(o).keep_split || known.at(o).keep_partial;
    const auto held = is_any_kept ? held_partial(known, i) : operand_shardings{};
    for (int k = 0; k < n.operands.count; ++k) {
      state_.table.wanted.push_back(use.wanted[k]);
      if (is_any_kept && breaks_policy(known, n, k, use.wanted[k], held[k])) ++state_.forced;
      const axis_mask lost = axes_lost(known, i, rule, k, use.wanted[k]);
      if (lost == 0) continue;
      choice.lost |= lost;
      choice.forced |= std::uint32_t{1} << k;
      ++state_.forced;
    }
    const auto takes = of_operators.own_time(i, n, rule, use);
    add_time(takes.all, state_.book.depth());
    state_.least = add_times(state_.least, known.time_in_all_trips(takes.least, state_.book.depth()));
    return choice;
  }

  /// Returns the use of the axes that the types of the program state. Operands keep their layouts. If an axis splits
  /// one operand and another operand with the same factor is replicated along it, the replicated operand is sliced.
  [[nodiscard]] constexpr operator_use typed_use(int i, const node& n, const op_rule& rule) const {
    operator_use use;
    for (int k = 0; k < n.operands.count; ++k)
      for (const auto& f : to_factors(known_.mesh, rule, rule.operand(k), known_.preferred_of(n.operands[k]).splits))
        add_if_free(use.uses, f);
    for (int k = 0; k < n.operands.count; ++k) {
      use.wanted.push_back(known_.preferred_of(n.operands[k]));
      use.wanted[k].splits = to_dims(known_.mesh, rule, rule.operand(k), use.uses);
    }
    use.result = known_.preferred_of(i);
    return use;
  }
  /// Adds `use` if its axis has no use yet.
  static constexpr void add_if_free(factor_splits& uses, const axis_use& use) {
    for (const auto& known : uses)
      if (known.axis == use.axis) return;
    add_factor_split(uses, use.axis, use.dim);
  }
  /// Returns the use of the axes at the border of a manual region (local_view_op). The border sends nothing. Both sides
  /// keep the layouts that are written for the region's axes. The other axes split both sides in the same way: like a
  /// form of the operand, or like the preferred sharding of the result or the operand, whichever costs least. If costs
  /// are equal, the largest shard is taken, because it contains the other shards. The users reshard the result as if no
  /// border existed.
  [[nodiscard]] constexpr operator_use border_use(int i, const node& n, const op_rule& rule) const {
    const sharding &from = known_.preferred_of(n.operands[0]), &to = known_.preferred_of(i);
    const auto add = [&](const tensor_map& map, const sharding& lies, bool is_closed, factor_splits& uses) {
      for (const auto& use : to_factors(known_.mesh, rule, map, lies.splits)) {
        const bool is_on_both = rule.operand(0).holds(use.dim) && rule.result().holds(use.dim);
        if (((n.annotation.closed & axis_bit(use.axis)) != 0) == is_closed && (is_closed || is_on_both)) add_if_free(uses, use);
      }
    };
    factor_splits written;
    add(rule.operand(0), from, true, written);
    add(rule.result(), to, true, written);
    const use_search search(known_.mesh, known_.net(), rule, use_search::no_preferences);
    operator_prices prices(known_, i, n, rule);
    const axis_mask terms = to.partial & n.annotation.closed;
    auto held = held_partial(known_, i);
    if (terms != 0 && held[0].reduced_by != to.reduced_by) held[0] = {};
    operator_use best;
    cost least{std::numeric_limits<int>::max()};
    const auto consider = [&](const tensor_map& map, const sharding& lies) {
      factor_splits uses = written;
      add(map, lies, false, uses);
      operator_use trial = use_of(known_, n, rule, search.legal(uses), held);
      trial.result.partial |= terms;
      if (terms != 0) trial.result.reduced_by = to.reduced_by;
      cost price = prices.of(trial, use_search::no_limit);
      price.memory = -local_elements(known_.mesh, known_.shape_of(n.operands[0]), trial.wanted[0]);  // ties: the largest shard
      if (!price.is_less_than(least)) return;
      least = price;
      best = trial;
    };
    for (int v = state_.book.first_of(n.operands[0]); v >= 0; v = state_.book.values[v].next)
      consider(rule.operand(0), state_.book.layout_of(v));
    consider(rule.result(), to);
    consider(rule.operand(0), from);
    return best;
  }
  /// Chooses for an operator that adds to a carried sum (loop_sums.hpp). If the added value is partial, the sum stays
  /// partial in the loop. If the operator does not run that way, the carried sum is marked as reduced and the operator
  /// is chosen like any other.
  constexpr operator_use choose_with_sums(operator_chooser& of_operators, int i, const node& n, const op_rule& rule) {
    const auto [carry, k] = summed_up_by(known_.program, known_.uses, i);
    if (k < 0) return of_operators.choose(i, n, rule);
    sharding& layout = state_.book.values[state_.book.first_of(carry)].layout;
    if (n.operands[k] != carry && layout.partial != 0) return with_one_more_term(n, rule, k, operand_added_to(n, k), layout);
    if (n.operands[k] != carry || !is_added_partial(i, n, k)) return of_operators.choose(i, n, rule);
    layout.partial = state_.book.layout_of(state_.book.last_of(n.operands[operand_added_to(n, k)])).partial;
    layout.reduced_by = monoid::add;
    state_.table.nodes[carry].result = layout;
    const operator_use use = of_operators.choose(i, n, rule);
    if (use.wanted[k] == layout && use.result == layout) return use;
    layout.partial = 0;
    state_.table.nodes[carry].result = layout;
    return of_operators.choose(i, n, rule);
  }
  /// Returns the use for one more term of a sum that is partial already. If the term is reduced, one device uses the
  /// term and the other devices use zeros.
  [[nodiscard]] constexpr operator_use with_one_more_term(const node& n, const op_rule& rule, int k, int added,
                                                          const sharding& sum) const {
    operator_use use = use_of(known_, n, rule, to_factors(known_.mesh, rule, rule.operand(k), sum.splits), {});
    for (sharding* const of : {&use.wanted[k], &use.wanted[added], &use.result}) {
      of->partial = sum.partial;
      of->reduced_by = monoid::add;
    }
    return use;
  }
  /// Returns true if the value that is added to operand `k` is partial and has the splits of the sum.
  [[nodiscard]] constexpr bool is_added_partial(int i, const node& n, int k) const {
    const sharding& sum = state_.book.layout_of(state_.book.first_of(n.operands[k]));
    const int added = n.operands[operand_added_to(n, k)];
    return is_partial(added, splits_of_added(known_.program, known_.mesh, i, k, sum.splits)) &&
           (state_.book.layout_of(state_.book.last_of(added)).partial & sum.split_axes()) == 0;
  }
  /// Returns true if all forms of node `i` are partial and the last form is a sum with these splits.
  [[nodiscard]] constexpr bool is_partial(int i, const inline_vec<axis_use, max_axes>& splits) const {
    int v = state_.book.first_of(i);
    while (v >= 0 && state_.book.layout_of(v).partial != 0 && state_.book.values[v].next >= 0) v = state_.book.values[v].next;
    const sharding none, &last = v < 0 ? none : state_.book.layout_of(v);
    return last.partial != 0 && last.reduced_by == monoid::add && last.splits == splits;
  }

  form_prices known_;
  choose_state& state_;
  reader_preferences readers_;
  operator_chooser operators_;
  form_walk<chooser> walk_;
  inline_vec<sharding, max_results> further_;   // shardings of the further results of the last operator
  const operator_use* const* fixed_ = nullptr;  // see fix
  replay* replay_;                              // null: every item is chosen
  bool is_replayed_ = false;                    // the current item
  int path_ = 0;                                // index of the next path of the replayed plan
  int chosen_ = 0, replayed_ = 0;
};

}  // namespace gspmd::detail
