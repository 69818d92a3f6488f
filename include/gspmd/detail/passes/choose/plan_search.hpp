// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <utility>

#include "gspmd/detail/passes/choose/choose.hpp"
#include "gspmd/detail/passes/choose/plan_changes.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// How far the search for a program's plan has come: another evaluation may go on from there.
struct search_state {
  choose_state best, trial;
  vec<sharding> preferred, tried;  // by node: of the best plan, and of the one under way
  vec<int> order;                  // the values that are tried, those first around which most time is spent; of each run one
  vec<std::uint8_t> differs;       // of the trial, and the next four: see replay
  vec<int> now;
  vec<std::uint64_t> known;            // what was asked for in plans that were tried, see plan_search::asks
  std::uint64_t at = 0, trial_at = 0;  // that of `preferred`, and of `tried`
  int last = 0;
  std::int64_t hope = 0;
  bool is_worse = false;         // of the trial: found out before its end, or before it began
  int place = 0, candidate = 0;  // the next change
  bool is_fine = false;          // of one axis
  int left = 0;                  // choices for operators that the search may yet make
  bool improved = false, is_complete = false;

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return choose_state::lists(s.best, [&](auto&... b) {
      return choose_state::lists(
          s.trial, [&](auto&... t) { return f(b..., t..., s.preferred, s.tried, s.order, s.differs, s.now, s.known); });
    });
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return choose_state::rest(s.best, [&](auto&... b) {
      return choose_state::rest(s.trial, [&](auto&... t) {
        return f(s.is_complete, b..., t..., s.at, s.trial_at, s.last, s.hope, s.is_worse, s.place, s.candidate, s.is_fine, s.left,
                 s.improved);
      });
    });
  }
};

/// Completion proposes, and this disposes: what nobody annotated may lie otherwise, if the whole plan takes less time then.
///
/// The plan for what completion found comes first. Then the sharding that is asked for of a value, and of all that elementwise
/// operators connect with it, is changed to what a neighbour of it would like, or to none, and what that reaches is chosen for again
/// (see replay): the better plan is kept, until no change helps or `most_choices_of_search` are made. Where all readers of a value may
/// take it as terms of a sum, one change is that they pay for adding it up: one of them may have something smaller to add up. In small
/// programs each change is tried once more with what lies as the run does, through transposes and products; and single axes are then
/// put on another dim, of such a run and of each value in it: neighbours like what they have, and the best may be a part of it. The
/// values go first around which most time is spent. Annotated values and outputs stay; what a loop carries may lie in it as neither
/// before nor after it. Plans are searched of which so much time is no work, or work that devices repeat, that it may pay
/// (support/tuning.hpp).
class plan_search {
 public:
  /// `completed`: what completion found; `asked`: the same, narrowed.
  constexpr plan_search(const graph& g, const mesh_shape& mesh, const value_uses& uses, span<const sharding> completed,
                        span<const sharding> asked, search_state& state)
      : graph_(g),
        mesh_(mesh),
        uses_(uses),
        completed_(completed),
        asked_(asked),
        state_(state),
        changes_(g, mesh, uses, asked, state.preferred) {}

  /// Goes on until all is done, or until so many nodes were looked at, or so many prices worked out.
  constexpr void run(int most_nodes, int most_prices) {
    while (!state_.is_complete && most_nodes > 0 && most_prices > 0) {
      const bool is_first = !state_.best.is_complete;
      if (!is_first && state_.preferred.empty()) {
        know_preferred();
        state_.left = is_worth_it() ? most_choices_of_search : 0;
        find_order();
        if (is_any_deferred()) state_.place = -alternatives - 1;
        else if (is_small()) state_.place = -alternatives;
        if (!find_change()) stop();
        most_nodes -= count() / replay::choice + 1;
        continue;
      }
      if (!is_first && state_.is_worse) {  // it was tried before
        --most_nodes;
        if (!find_change()) stop();
        continue;
      }
      choose_state& under_way = is_first ? state_.best : state_.trial;
      replay known{state_.best, state_.differs, state_.now, state_.last, state_.hope, state_.is_worse};
      chooser choices(graph_, mesh_, uses_, is_first ? asked_ : span<const sharding>(state_.tried.data(), state_.tried.size()),
                      under_way, is_first ? nullptr : &known);
      choices.run(most_nodes, most_prices);
      const int work = choices.chosen() + choices.replayed() / replay::choice;
      most_nodes -= work + 1;
      most_prices -= choices.prices();
      if (!is_first && state_.place >= 0) state_.left -= work + 1;
      if (!under_way.is_complete && !state_.is_worse) return;
      if (is_first) {
        if (!is_worth_it() && !is_any_deferred()) stop();
        most_nodes -= count() / replay::choice;  // to prepare for the search is much, too
        continue;
      }
      if (!state_.is_worse && state_.trial.is_better_than(state_.best) && (!state_.is_fine || pays_for_its_steps())) {
        std::swap(state_.best, state_.trial);
        std::swap(state_.preferred, state_.tried);
        state_.at = state_.trial_at;
        state_.improved = true;
        changes_at_ = -1;
        spent_.clear();
      }
      if (!find_change()) stop();
    }
  }

  /// A plan in which a value, and all that elementwise operators connect with it, lies otherwise.
  struct other_plan {
    sharding lies;
    std::int64_t time = 0;
    int forced = 0;
  };
  /// Once the search is complete: what the changes of node `i` that it may try lead to; none where it must lie as it does.
  [[nodiscard]] constexpr vec<other_plan> others(int i) {
    vec<other_plan> found;
    if (!changes_.is_free(i)) return found;
    know_preferred();
    const auto run = changes_.run_of(i);
    for (const auto& s : changes_.candidates_for(run)) {
      state_.tried = state_.preferred;
      for (const int member : run) state_.tried[member] = s;
      choose_state trial(graph_);
      trial.table.as_written = state_.best.table.as_written;
      constexpr int no_limit = std::numeric_limits<int>::max();
      chooser(graph_, mesh_, uses_, span<const sharding>(state_.tried.data(), state_.tried.size()), trial)
          .run(no_limit, no_limit);
      found.push_back({s, trial.time, trial.forced});
    }
    return found;
  }
  /// Returns the sharding that is asked for of every value in the end.
  constexpr const vec<sharding>& know_preferred() {
    if (state_.preferred.empty()) state_.preferred = vec<sharding>(asked_.data(), asked_.data() + asked_.size());
    return state_.preferred;
  }

 private:
  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(graph_.nodes.size()); }
  [[nodiscard]] constexpr bool is_small() const { return count() <= most_values_for_alternatives; }

  [[nodiscard]] constexpr bool is_worth_it() const {
    if (gainable() < least_picoseconds_of_search) return false;
    for (const auto& n : graph_.nodes)
      if (n.forbid_reshard || n.gather_limit >= 0) return false;
    return true;
  }
  /// The time that another plan may save, at most.
  [[nodiscard]] constexpr std::int64_t gainable() const { return state_.best.time - state_.best.least; }
  constexpr void stop() {
    state_.is_complete = true;
    state_.trial = {};
    state_.tried = {};
    state_.order = {};
    state_.differs = {};
    state_.now = {};
    state_.known = {};
  }

  /// The values to try. Where little time is spent around them, little is gained.
  constexpr void find_order() {
    changes_at_ = -1;
    const auto& spent = times_spent();
    vec<std::uint8_t> is_known(static_cast<std::size_t>(count()), 0);
    vec<std::int64_t> around;  // by place in the order
    state_.order.clear();
    for (int i = 0; i < count(); ++i) {
      if (is_known[i] != 0 || !changes_.is_free(i)) continue;
      const auto run = changes_.run_of(i);
      for (const int member : run) is_known[member] = 1;
      const auto time = time_around(run, spent);
      if (time == 0 || time < gainable() / least_part_of_search) continue;
      if (around.size() == most_in_order) {
        if (around.back() >= time) continue;
        around.pop_back();
        state_.order.pop_back();
      }
      state_.order.push_back(i);
      around.push_back(time);
      for (std::size_t k = around.size() - 1; k > 0 && around[k - 1] < around[k]; --k) {
        std::swap(around[k - 1], around[k]);
        std::swap(state_.order[k - 1], state_.order[k]);
      }
    }
    state_.place = 0;
    state_.candidate = 0;
    state_.improved = false;
  }

  /// By node: what its operator takes and, if it is an output, that; but for the work that no plan does without.
  constexpr const vec<std::int64_t>& times_spent() {
    if (!spent_.empty()) return spent_;
    const auto& marks = state_.best.marks;
    const auto time_of = [&marks](int item) {
      return marks[item + 1].time - marks[item].time - (marks[item + 1].least - marks[item].least);
    };
    spent_.resize(static_cast<std::size_t>(count()), 0);
    for (int i = 0; i < count(); ++i) spent_[i] = time_of(i);
    for (int k = 0; k < static_cast<int>(graph_.outputs.size()); ++k)
      spent_[graph_.outputs[static_cast<std::size_t>(k)]] += time_of(count() + k);
    return spent_;
  }
  [[nodiscard]] constexpr std::int64_t time_around(const vec<int>& run, const vec<std::int64_t>& spent) const {
    std::int64_t time = 0;
    for (const int member : run) {
      time += spent[member];
      for (const int reader : uses_.readers[member]) time += spent[reader];
    }
    return time;
  }

  /// By bytes alone many small exchanges are better than one; a change of one axis must gain what it takes to begin those it adds.
  [[nodiscard]] constexpr bool pays_for_its_steps() const {
    if (!mesh_.network.is_by_bytes()) return true;
    const auto steps = [](const choose_state& s) { return static_cast<std::int64_t>(s.table.steps.size()); };
    const auto added = steps(state_.trial) - steps(state_.best);
    return added <= 0 || state_.best.time - state_.trial.time >= multiply_time(picoseconds_to_begin_collective, added);
  }

  /// The next change of what is asked for; false if there is none left.
  constexpr bool find_change() {
    if (gainable() == 0) return false;
    if (state_.place < -alternatives) {
      if (state_.candidate++ == 0) {
        try_as_written();
        return true;
      }
      state_.candidate = 0;
      state_.place = is_small() ? -alternatives : 0;
    }
    if (state_.place < 0 && state_.left > 0) {
      try_alternative(alternatives + state_.place++);
      return true;
    }
    for (int rounds = 0; rounds < 3 && state_.left > 0; ++rounds) {
      for (; state_.place < static_cast<int>(state_.order.size()); ++state_.place, state_.candidate = 0) {
        know_changes();
        const int count = static_cast<int>(list_.size()), members = static_cast<int>(run_.size());
        if (state_.is_fine) {
          if (state_.candidate >= (members > 1 ? (1 + members) * count : count)) continue;
          const int k = state_.candidate++;
          vec<int> alone;  // all of the run, then each of it
          if (k >= count) alone.push_back(run_[k / count - 1]);
          return try_change(k < count ? run_ : alone, list_[k % count]);
        }
        const int ways = is_small() ? 2 : 1;  // once more, with what follows the run
        while (state_.candidate < ways * count) {
          const int k = state_.candidate++;
          if (try_change(run_, list_[k % count], k >= count)) return true;
        }
      }
      if (!state_.improved && (state_.is_fine || !is_small())) return false;
      state_.is_fine = !state_.improved;
      find_order();
    }
    return false;
  }
  /// The values around the place that is tried, and how they may lie.
  constexpr void know_changes() {
    if (changes_at_ == state_.place) return;
    changes_at_ = state_.place;
    run_ = changes_.run_of(state_.order[state_.place]);
    list_.clear();
    if (state_.is_fine) list_ = changes_.one_axis_away(run_[0]);
    else
      for (const auto& s : changes_.candidates_for(run_)) list_.push_back(s);
  }
  /// False if what follows the run is to change too, and nothing does.
  constexpr bool try_change(vec<int> changed, const sharding& s, bool is_followed = false) {
    if (!is_followed && is_known(changed, &s)) return true;
    state_.tried = state_.preferred;
    for (const int i : changed) state_.tried[i] = s;
    if (is_followed) {
      if (!changes_.change_followers(changed, state_.tried)) return false;
      if (is_known(changed)) return true;
    }
    state_.hope = time_around(changed, times_spent());
    begin_trial(changed);
    return true;
  }
  /// Tries the plans that the result may not be worse than: nothing is split that need not be; everything lies as its first operand does,
  /// or as what reads it, or as completion has it, whole where only slices of it are read.
  constexpr void try_alternative(int which) {
    state_.tried = state_.preferred;
    state_.hope = state_.best.time;
    vec<int> changed;
    for (int k = 0; k < count(); ++k) {
      const int i = which == 2 ? count() - 1 - k : k;
      if (!changes_.is_free(i)) continue;
      changed.push_back(i);
      sharding& tried = state_.tried[i];
      if (which == 3) {
        tried.splits = completed_[static_cast<std::size_t>(i)].splits;
        continue;
      }
      const int reader = which == 2 ? uses_.readers[i][0] : i;
      const node& n = at(reader);
      op_rule rule;
      rule_of(graph_, n, rule);
      int operand = 0;
      while (which == 2 && n.operands[operand] != i) ++operand;
      if (which == 0) tried.splits.clear();
      else if (which == 1)
        tried.splits = changes_.carried(rule, rule.operand(0), state_.tried[n.operands[0]].splits, rule.result());
      else tried.splits = changes_.carried(rule, rule.result(), state_.tried[reader].splits, rule.operand(operand));
    }
    if (!is_known(changed)) begin_trial({}, true);
  }
  /// No reshard is deferred: what one brings somewhere others may want there too.
  constexpr void try_as_written() {
    state_.tried = state_.preferred;
    state_.hope = state_.best.time;
    begin_trial({}, true);
    state_.trial.table.as_written = true;
  }
  [[nodiscard]] constexpr bool is_any_deferred() const {
    for (const auto& n : graph_.nodes)
      if (n.deferred) return true;
    return false;
  }
  /// The hash of the sharding that is asked for of a node; the sum over all nodes stands for a plan.
  static constexpr std::uint64_t asks(int i, const sharding& s) {
    std::uint64_t key = s.partial + 1;
    for (int k = 0; k < s.splits.count; ++k)
      key = 1021 * key + static_cast<std::uint64_t>(32 * s.splits.items[k].axis + s.splits.items[k].dim + 1);
    key = (key + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15U;
    key = (key ^ key >> 29) * 0xbf58476d1ce4e5b9U;
    return key ^ key >> 32;
  }
  /// Whether a plan was tried already for which the same is asked for as now, where only what is asked for of `changed` differs, `s` of each
  /// or what is tried of it: there is no need to try it again.
  constexpr bool is_known(const vec<int>& changed, const sharding* s = nullptr) {
    if (state_.known.empty()) state_.known.push_back(state_.at);
    state_.trial_at = state_.at;
    for (const int i : changed) state_.trial_at += asks(i, s != nullptr ? *s : state_.tried[i]) - asks(i, state_.preferred[i]);
    for (const auto known : state_.known)
      if (known == state_.trial_at) return state_.is_worse = true;
    state_.known.push_back(state_.trial_at);
    return false;
  }
  /// `is_anew`: nothing is taken over from the best plan. Otherwise only these may have changed.
  constexpr void begin_trial(const vec<int>& changed, bool is_anew = false) {
    int first = count();
    state_.differs.clear();
    state_.differs.resize(static_cast<std::size_t>(count()), 0);
    state_.last = 0;
    state_.is_worse = false;
    const auto note = [&](int i) {
      state_.differs[i] = replay::preferred;
      if (i < first) first = i;
      if (i > state_.last) state_.last = i;
    };
    for (const int i : changed) {
      if (same_layout(state_.tried[i], state_.preferred[i])) continue;
      note(i);
      for (const int reader : uses_.readers[i]) {  // it may take its operand as it is asked for, though that lies as it did
        if (uses_.readers[i].size() > most_siblings) break;
        note(reader);
      }
      if (!facts_of(at(i).op).uniform) continue;
      for (const int o : at(i).operands)  // who reads the same looks at what this asks for, see later_preferences
        if (uses_.readers[o].size() <= most_siblings)
          for (const int sibling : uses_.readers[o])
            if (sibling < i && sibling != o) note(sibling);
    }
    if (is_anew) {
      for (int i = 0; i < count(); ++i) note(i);
      state_.last = count() + static_cast<int>(graph_.outputs.size()) - 1;
    }
    if (graph_.has_regions || mesh_.saving > 0) {  // forms went, or were never kept
      state_.trial = choose_state(graph_);
      first = 0;
    } else {
      state_.trial = choose_state(state_.best, first);
    }
    state_.trial.table.as_written = state_.best.table.as_written;
    state_.now.clear();
    for (int v = 0; v < state_.best.marks[first].values; ++v) state_.now.push_back(v);
  }

  static constexpr std::size_t most_siblings = 8, most_in_order = 32;
  static constexpr int alternatives = 4, most_values_for_alternatives = 32;

  const graph& graph_;
  const mesh_shape& mesh_;
  const value_uses& uses_;
  span<const sharding> completed_, asked_;
  search_state& state_;
  plan_changes changes_;

  // The members below hold until a better plan is found.
  vec<std::int64_t> spent_;  // see times_spent
  int changes_at_ = -1;      // the place in the order for which the next two are known
  vec<int> run_;
  vec<sharding> list_;
};

constexpr choice_table choose_program(const graph& g, const mesh_shape& mesh, const value_uses& uses,
                                      span<const sharding> preferred, span<const sharding> completed = {}) {
  constexpr int no_limit = std::numeric_limits<int>::max();
  search_state state;
  state.best = choose_state(g);
  plan_search(g, mesh, uses, completed.empty() ? preferred : completed, preferred, state).run(no_limit, no_limit);
  return std::move(state.best.table);
}

}  // namespace gspmd::detail
