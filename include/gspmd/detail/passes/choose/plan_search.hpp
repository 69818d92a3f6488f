// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/passes/choose/choose.hpp"
#include "gspmd/detail/passes/choose/plan_changes.hpp"
#include "gspmd/detail/passes/choose/whole_plans.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/tuning.hpp"

namespace gspmd::detail {

/// The phases of a search. `connected_values` gives values with equal shardings, connected by elementwise operators,
/// the sharding that a neighbour prefers. `single_axes` moves one axis of a value to another dim, for all connected
/// values and for each single value. The second phase finds shardings that no neighbour has.
enum class search_phase : std::uint8_t { not_begun, connected_values, single_axes, done };

/// The progress of the search for a program's plan. Another evaluation can continue from it.
struct search_state {
  struct lengths {
    choose_lengths best, trial;
    std::size_t preferred = 0, tried = 0, order = 0, known = 0;
    struct {
      std::size_t of = 0, now = 0;
    } differs;
  };
  search_phase phase = search_phase::not_begun;
  choose_state best;
  std::int64_t bound = -1;  // picoseconds that no plan is below; -1: not known, see solve_plan.hpp
  vec<sharding> preferred;  // by node: the shardings that `best` prefers

  // The changes of the round. The next change is number `change` of the changes around the value order[place].
  vec<int> order;
  int place = 0, change = 0;
  bool is_improved = false;  // a better plan was found in this round
  int choices_left = 0;      // remaining choices for operators, in all rounds

  // The plan with the last change, while it is made.
  bool is_trying = false;
  choose_state trial;
  vec<sharding> tried;
  differences differs;

  // The hashes of the preferred shardings of all plans that were tried, of `preferred` and of `tried`.
  vec<std::uint64_t> known;
  std::uint64_t key = 0, tried_key = 0;

  static constexpr auto lists(auto& s, auto f) {
    return choose_state::lists(s.best, [&](auto&... b) {
      return choose_state::lists(s.trial, [&](auto&... t) {
        return f(b..., t..., s.preferred, s.tried, s.order, s.differs.of, s.differs.now, s.known);
      });
    });
  }
  struct rest_members {
    search_phase phase = search_phase::not_begun;
    choose_state::rest_members best, trial;
    int place = 0, change = 0;
    bool is_improved = false;
    int choices_left = 0;
    bool is_trying = false;
    struct {
      int last = 0;
      std::int64_t hope = 0;
      bool is_worse = false;
    } differs;
    std::uint64_t key = 0, tried_key = 0;
  };
  static constexpr auto rest(auto& s, auto f) {
    return choose_state::rest(s.best, [&](auto&... b) {
      return choose_state::rest(s.trial, [&](auto&... t) {
        return f(s.phase, b..., t..., s.place, s.change, s.is_improved, s.choices_left, s.is_trying, s.differs.last,
                 s.differs.hope, s.differs.is_worse, s.key, s.tried_key);
      });
    });
  }
};

/// The program for a function that chooses all shardings together (plan_request::solve).
struct solve_input {
  const graph& program;
  const mesh_shape& mesh;
  const plan_request& request;
  const value_uses& uses;
  span<const sharding> asked;  // the shardings of completion, narrowed
};

/// Searches for a better plan than the best of whole_plans.hpp. Runs if the mesh requests a search (plan/search.hpp)
/// and if other plans may save enough time (support/tuning.hpp).
///
/// Input: the best whole plan and the shardings that it prefers. Result: search_state::best and
/// search_state::preferred.
///
/// 1. Orders the values by the time that is spent around them, the largest time first.
/// 2. Takes one value after the other, together with its run (plan_changes.hpp). Tries the shardings that neighbours
///    prefer, and unsplit. Chooses again only for the operators that the change reaches (replay.hpp). Keeps a plan that
///    is better.
/// 3. If a round kept a plan, a new round begins. If it did not, small programs try changes of single axes. If these do
///    not help either, or after `most_choices_of_search` choices, the search ends.
///
/// If all users of a run accept partial values, one change leaves the run partial, so that a user can reduce a smaller
/// value. In small programs each change is tried once more with the values that follow through transposes and products.
/// Annotated values and outputs never change. A carried value may have another sharding inside the loop than before and
/// after it.
class plan_search {
 public:
  /// `asked`: the shardings of completion, narrowed. `state` begins with the best known plan.
  constexpr plan_search(const graph& g, const mesh_shape& mesh, const plan_request& request, const value_uses& uses,
                        span<const sharding> asked, search_state& state)
      : graph_(g), mesh_(mesh), request_(request), uses_(uses), state_(state), changes_(g, mesh, uses, asked, state.preferred) {}

  /// Continues until no change helps, or until `most_nodes` choices were made or `most_prices` prices were computed.
  constexpr void run(int most_nodes, int most_prices) {
    if (state_.phase == search_phase::not_begun) {
      begin();
      most_nodes -= count() / replay::choice + 1;
    }
    while (state_.phase != search_phase::done && most_nodes > 0 && most_prices > 0) {
      if (state_.is_trying) {
        go_on_trying(most_nodes, most_prices);
      } else {
        next_change();
        --most_nodes;
      }
    }
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(graph_.nodes.size()); }
  [[nodiscard]] constexpr bool is_small() const { return count() <= most_values_for_alternatives; }

  constexpr void begin() {
    state_.choices_left = most_choices_of_search;
    state_.known.push_back(state_.key);
    begin_round(search_phase::connected_values);
  }
  constexpr void end() {
    search_state ended;
    ended.phase = search_phase::done;
    ended.best = std::move(state_.best);
    ended.bound = state_.bound;
    ended.preferred = std::move(state_.preferred);
    state_ = std::move(ended);
  }

  // ---- rounds ----

  constexpr void begin_round(search_phase phase) {
    state_.phase = phase;
    state_.order = values_to_try();
    state_.place = 0;
    state_.change = 0;
    state_.is_improved = false;
    forget();
  }
  constexpr void next_change() {
    if (state_.choices_left <= 0 || gainable(state_.best) == 0) return end();
    if (state_.place == static_cast<int>(state_.order.size())) {
      if (state_.is_improved) begin_round(search_phase::connected_values);
      else if (state_.phase == search_phase::connected_values && is_small()) begin_round(search_phase::single_axes);
      else end();
      return;
    }
    know_changes();
    if (state_.change >= static_cast<int>(list_.size())) {  // the list is shorter if a better plan was kept
      ++state_.place;
      state_.change = 0;
      return;
    }
    begin_trying(list_[state_.change++]);
  }

  /// Returns the values to try, one for each run. A small program tries all runs. A large program skips runs with
  /// little time around them. This can miss a carried value, whose cost is in its reshard and not at its users.
  [[nodiscard]] constexpr vec<int> values_to_try() {
    vec<int> order;
    vec<std::int64_t> around;  // by position in `order`
    vec<std::uint8_t> is_known(static_cast<std::size_t>(count()), 0);
    for (int i = 0; i < count(); ++i) {
      if (is_known[i] != 0 || !changes_.is_free(i)) continue;
      const auto run = changes_.run_of(i);
      for (const int member : run) is_known[member] = 1;
      const auto time = time_around(run);
      if (!is_small() && (time == 0 || time < gainable(state_.best) / least_part_of_search)) continue;
      if (around.size() == most_in_order) {
        if (around.back() >= time) continue;
        around.pop_back();
        order.pop_back();
      }
      order.push_back(i);
      around.push_back(time);
      for (std::size_t k = around.size() - 1; k > 0 && around[k - 1] < around[k]; --k) {
        std::swap(around[k - 1], around[k]);
        std::swap(order[k - 1], order[k]);
      }
    }
    return order;
  }

  /// Returns the time that is spent on these values and on their users, without the work that every plan needs.
  [[nodiscard]] constexpr std::int64_t time_around(const vec<int>& values) {
    if (spent_.empty()) know_times();
    std::int64_t time = 0;
    for (const int i : values) {
      time += spent_[i];
      for (const int reader : uses_.readers(i)) time += spent_[reader];
    }
    return time;
  }
  /// Computes by node the time of its operator. For an output, adds the time to bring it to its sharding.
  constexpr void know_times() {
    const auto& marks = state_.best.marks;
    const auto time_of = [&marks](int item) {
      return marks[item + 1].time - marks[item].time - (marks[item + 1].least - marks[item].least);
    };
    spent_.resize(static_cast<std::size_t>(count()), 0);
    for (int i = 0; i < count(); ++i) spent_[i] = time_of(i);
    for (int k = 0; k < static_cast<int>(graph_.outputs.size()); ++k)
      spent_[graph_.outputs[static_cast<std::size_t>(k)]] += time_of(count() + k);
  }

  // ---- changes ----

  struct plan_change {
    vec<int> values;
    sharding lies;
    bool with_followers = false;
  };

  /// Lists the changes around the current value.
  constexpr void know_changes() {
    if (listed_at_ == state_.place) return;
    listed_at_ = state_.place;
    list_.clear();
    const vec<int> run = changes_.run_of(state_.order[state_.place]);
    const auto add = [this](const vec<int>& values, const sharding& lies, bool with_followers) {
      plan_change change;
      change.values = values;
      change.lies = lies;
      change.with_followers = with_followers;
      list_.push_back(std::move(change));
    };
    if (state_.phase == search_phase::single_axes) {
      const auto moved = changes_.one_axis_away(run[0]);
      for (const auto& s : moved) add(run, s, false);
      if (run.size() == 1) return;
      for (const int i : run)
        for (const auto& s : moved) add({i}, s, false);
    } else {
      const auto liked = changes_.candidates_for(run);
      for (const auto& s : liked) add(run, s, false);
      if (!is_small()) return;
      for (const auto& s : liked) add(run, s, true);
    }
  }
  /// Begins the plan with a change, unless an equal plan was tried before.
  constexpr void begin_trying(const plan_change& change) {
    vec<int> changed = change.values;
    state_.tried = state_.preferred;
    for (const int i : changed) state_.tried[i] = change.lies;
    if (change.with_followers && !changes_.change_followers(changed, state_.tried)) return;
    if (is_known(changed)) return;
    begin_trial(changed);
    state_.differs.hope = is_small() ? state_.best.time : time_around(changed);
    state_.is_trying = true;
  }
  constexpr void go_on_trying(int& most_nodes, int& most_prices) {
    replay known{state_.best, state_.differs};
    chooser choices(graph_, mesh_, request_, uses_, span<const sharding>(state_.tried.data(), state_.tried.size()), state_.trial,
                    &known);
    choices.run(most_nodes, most_prices);
    const int work = choices.chosen() + choices.replayed() / replay::choice + 1;
    most_nodes -= work;
    most_prices -= choices.prices();
    state_.choices_left -= work;
    if (!state_.trial.is_complete && !state_.differs.is_worse) return;
    state_.is_trying = false;
    if (!state_.differs.is_worse && state_.trial.is_better_than(state_.best) && pays_for_its_steps()) keep();
  }
  constexpr void keep() {
    std::swap(state_.best, state_.trial);
    std::swap(state_.preferred, state_.tried);
    state_.key = state_.tried_key;
    state_.is_improved = true;
    forget();
  }
  /// Discards the data about the previous best plan.
  constexpr void forget() {
    spent_.clear();
    listed_at_ = -1;
  }

  /// Returns true if a change of single axes saves more time than the steps that it adds take to begin. A network that
  /// counts only bytes would otherwise prefer many small exchanges to one large exchange.
  [[nodiscard]] constexpr bool pays_for_its_steps() const {
    if (state_.phase != search_phase::single_axes || !request_.network.is_by_bytes(mesh_.device_count())) return true;
    const auto steps = [](const choose_state& s) { return static_cast<std::int64_t>(s.table.steps.size()); };
    const auto added = steps(state_.trial) - steps(state_.best);
    return added <= 0 || state_.best.time - state_.trial.time >= multiply_time(picoseconds_to_begin_collective, added);
  }

  /// Returns true if a plan with the same preferred shardings was tried already. If not, records the plan.
  constexpr bool is_known(const vec<int>& changed) {
    state_.tried_key = state_.key;
    for (const int i : changed) state_.tried_key += key_of(i, state_.tried[i]) - key_of(i, state_.preferred[i]);
    for (const auto known : state_.known)
      if (known == state_.tried_key) return true;
    state_.known.push_back(state_.tried_key);
    return false;
  }
  /// Returns the hash of the preferred sharding of a node. The sum over all nodes identifies a plan.
  static constexpr std::uint64_t key_of(int i, const sharding& s) {
    std::uint64_t key = s.partial + 1;
    for (int k = 0; k < s.splits.count; ++k)
      key = 1021 * key + static_cast<std::uint64_t>(32 * s.splits.items[k].axis + s.splits.items[k].dim + 1);
    key = (key + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15U;
    key = (key ^ key >> 29) * 0xbf58476d1ce4e5b9U;
    return key ^ key >> 32;
  }

  /// Marks the parts of the best plan that a plan with these changed values cannot reuse. Copies the rest.
  constexpr void begin_trial(const vec<int>& changed) {
    differences& differs = state_.differs;
    int first = count();
    differs = {};
    differs.of.resize(static_cast<std::size_t>(count()), 0);
    const auto note = [&](int i) {
      differs.of[i] = replay::preferred;
      if (i < first) first = i;
      if (i > differs.last) differs.last = i;
    };
    for (const int i : changed) {
      if (state_.tried[i] == state_.preferred[i]) continue;
      note(i);
      for (const int reader : uses_.readers(i)) {  // a user also considers the preferred sharding of its operand
        if (uses_.readers(i).size() > most_siblings) break;
        note(reader);
      }
      if (!facts_of(at(i).op).uniform) continue;
      for (const int o : at(i).operands)  // users of the same operand consider this preference, see later_preferences
        if (uses_.readers(o).size() <= most_siblings)
          for (const int sibling : uses_.readers(o))
            if (sibling < i && sibling != o) note(sibling);
    }
    if (graph_.has_regions || request_.saving > 0) {  // forms were removed, or never kept
      state_.trial = choose_state(graph_);
      first = 0;
    } else {
      state_.trial = choose_state(state_.best, first);
    }
    state_.trial.table.as_written = state_.best.table.as_written;
    for (int v = 0; v < state_.best.marks[first].values; ++v) differs.now.push_back(v);
  }

  static constexpr std::size_t most_siblings = 8, most_in_order = most_values_in_order_of_search;

  const graph& graph_;
  const mesh_shape& mesh_;
  const plan_request& request_;
  const value_uses& uses_;
  search_state& state_;
  plan_changes changes_;

  // The members below describe the best plan. Another evaluation computes them again.
  vec<std::int64_t> spent_;  // see know_times
  int listed_at_ = -1;       // the position in the order that list_ belongs to
  vec<plan_change> list_;
};

/// Returns the state of a search that begins with the best of the whole plans.
constexpr search_state begin_search(whole_plans found, span<const sharding> asked) {
  search_state state;
  if (!found.may_pay) state.phase = search_phase::done;
  state.best = std::move(found.best);
  state.preferred = std::move(found.preferred);
  if (state.preferred.empty()) state.preferred.assign(asked.data(), asked.data() + asked.size());
  return state;
}

}  // namespace gspmd::detail
