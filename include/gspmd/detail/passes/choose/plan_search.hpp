// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <span>
#include <utility>

#include "gspmd/detail/passes/choose/choose.hpp"

namespace gspmd::detail {

/// How far the search for a program's plan has come: another evaluation may go on from there.
struct search_state {
  choose_state best, trial;
  vec<sharding> wishes, tried;  // by node: of the best plan, and of the one under way
  int node = 0, candidate = 0;  // the next change
  int left = 0;                 // choices for operators that the search may yet make
  bool improved = false, is_complete = false;

  template <class S, class F>
  static constexpr auto lists(S& s, F f) {
    return choose_state::lists(s.best, [&](auto&... b) {
      return choose_state::lists(s.trial, [&](auto&... t) { return f(b..., t..., s.wishes, s.tried); });
    });
  }
  template <class S, class F>
  static constexpr auto rest(S& s, F f) {
    return choose_state::rest(s.best, [&](auto&... b) {
      return choose_state::rest(
          s.trial, [&](auto&... t) { return f(s.is_complete, b..., t..., s.node, s.candidate, s.left, s.improved); });
    });
  }
};

/// Completion proposes, and this disposes: what nobody annotated may lie otherwise, if the whole plan takes less time then.
///
/// The plan for what completion found comes first. Then the sharding that is asked for of one value, or of all that a run of elementwise
/// operators connects, is changed to what a neighbour of it would like, or to none, and the program is chosen for again: the better
/// plan is kept, until no change helps or `most_choices_of_search` are made. Annotated values, outputs and what loops carry stay.
/// Programs are searched that have a tensor worth the while of it (support/tuning.hpp).
class plan_search {
 public:
  constexpr plan_search(const graph& g, const mesh_shape& mesh, const value_uses& uses, std::span<const sharding> asked,
                        search_state& state)
      : graph_(g), mesh_(mesh), uses_(uses), asked_(asked), state_(state) {}

  static constexpr bool is_worth_it(const graph& g) {
    const auto count = static_cast<int>(g.nodes.size());
    if (g.largest_bytes < least_bytes_of_search || 2 * count > most_choices_of_search) return false;
    for (const auto& n : g.nodes)
      if (n.forbid_reshard || n.gather_limit >= 0) return false;
    return true;
  }

  /// Goes on until all is done, or until so many nodes were looked at, or so many prices worked out.
  constexpr void run(int most_nodes, int most_prices) {
    const auto count = static_cast<int>(graph_.nodes.size());
    for (;;) {
      const bool is_first = !state_.best.is_complete;
      choose_state& under_way = is_first ? state_.best : state_.trial;
      const auto begin = under_way.next;
      chooser choices(graph_, mesh_, uses_,
                      is_first ? asked_ : std::span<const sharding>(state_.tried.data(), state_.tried.size()), under_way);
      choices.run(most_nodes, most_prices);
      if (!under_way.is_complete) return;
      most_nodes -= under_way.next - begin;
      most_prices -= choices.prices();
      if (is_first) {
        if (!is_worth_it(graph_) || state_.best.time == 0) {
          state_.is_complete = true;
          return;
        }
        state_.wishes = vec<sharding>(asked_.data(), asked_.data() + asked_.size());
        state_.left = most_choices_of_search - count;
      } else if (state_.trial.is_better_than(state_.best)) {
        std::swap(state_.best, state_.trial);
        std::swap(state_.wishes, state_.tried);
        state_.improved = true;
      }
      if (!find_change()) {
        state_.is_complete = true;
        state_.trial = {};
        state_.tried = {};
        return;
      }
      if (most_nodes < count || most_prices <= 0) return;
    }
  }

 private:
  using candidates = inline_vec<sharding, 8>;

  [[nodiscard]] constexpr const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }

  /// The next change of a wish; false if there is none left.
  constexpr bool find_change() {
    const auto count = static_cast<int>(graph_.nodes.size());
    if (state_.left < count || state_.best.time == 0) return false;
    for (int rounds = 0; rounds < 2; ++rounds) {
      for (; state_.node < count; ++state_.node, state_.candidate = 0) {
        if (!is_free(state_.node)) continue;
        const auto list = candidates_for(state_.node);
        while (state_.candidate < 2 * list.count) {
          const int c = state_.candidate++;
          state_.tried = state_.wishes;
          const int changed = change(state_.node, list[c / 2], c % 2 == 0);
          if (c % 2 == 1 && changed == 1) continue;  // there is no run
          state_.trial = choose_state(graph_);
          state_.left -= count;
          return true;
        }
      }
      if (!state_.improved) return false;
      state_.improved = false;
      state_.node = state_.candidate = 0;
    }
    return false;
  }

  [[nodiscard]] constexpr bool is_free(int i) const {
    const node& n = at(i);
    if (n.annotated || uses_.needed[i] == 0 || facts_of(n.op).made != origin::shards || n.results != 1) return false;
    if (n.operands.count == 0) return false;
    for (const int reader : uses_.readers[i])
      if (reader == i || facts_of(at(reader).op).made != origin::shards) return false;
    return true;
  }

  /// Asks for `s` of node `i`; unless `alone`, of what elementwise operators connect with it too that was asked for alike. How many
  /// nodes that are.
  constexpr int change(int i, const sharding& s, bool alone) {
    const sharding before = state_.tried[i];
    vec<int> open;
    open.push_back(i);
    state_.tried[i] = s;
    for (std::size_t k = 0; k < open.size() && !alone; ++k) {
      const auto take = [&](int j) {
        if (!is_free(j) || !(state_.tried[j].splits == before.splits) || at(j).shape.count != at(i).shape.count) return;
        state_.tried[j] = s;
        open.push_back(j);
      };
      const int here = open[k];
      if (facts_of(at(here).op).uniform)
        for (const int o : at(here).operands) take(o);
      for (const int reader : uses_.readers[here])
        if (facts_of(at(reader).op).uniform) take(reader);
    }
    return static_cast<int>(open.size());
  }

  /// What the neighbours of node `i` would like it to be, and nothing; none where they agree.
  [[nodiscard]] constexpr candidates candidates_for(int i) const {
    candidates list;
    const auto add = [&](const inline_vec<axis_use, max_axes>& splits) {
      if (list.count == candidates::capacity || splits == state_.wishes[i].splits) return;
      for (const auto& known : list)
        if (known.splits == splits) return;
      sharding s;
      s.splits = splits;
      list.push_back(s);
    };
    op_rule rule;
    rule_of(graph_, at(i), rule);
    for (int k = 0; k < at(i).operands.count; ++k)
      add(carried(rule, rule.operand(k), state_.wishes[at(i).operands[k]].splits, rule.result()));
    for (const int reader : uses_.readers[i]) {
      const node& user = at(reader);
      op_rule its;
      rule_of(graph_, user, its);
      for (int k = 0; k < user.operands.count; ++k) {
        if (user.operands[k] != i) continue;
        add(carried(its, its.result(), state_.wishes[reader].splits, its.operand(k)));
        for (int o = 0; o < user.operands.count; ++o)
          if (user.operands[o] != i) add(carried(its, its.operand(o), state_.wishes[user.operands[o]].splits, its.operand(k)));
      }
    }
    if (!list.empty()) add({});
    return list;
  }
  [[nodiscard]] constexpr inline_vec<axis_use, max_axes> carried(const op_rule& rule, const tensor_map& from,
                                                                 const inline_vec<axis_use, max_axes>& splits,
                                                                 const tensor_map& to) const {
    if (rule.uniform) return splits;
    auto factors = to_factors(mesh_, rule, from, splits);
    for (int k = factors.count - 1; k >= 0; --k) {
      if (rule.factors[factors[k].dim].kind != factor_kind::whole && to.holds(factors[k].dim)) continue;
      for (int j = k; j + 1 < factors.count; ++j) factors[j] = factors[j + 1];
      factors.pop_back();
    }
    return to_dims(mesh_, rule, to, factors);
  }

  const graph& graph_;
  const mesh_shape& mesh_;
  const value_uses& uses_;
  std::span<const sharding> asked_;
  search_state& state_;
};

constexpr choice_table choose_program(const graph& g, const mesh_shape& mesh, const value_uses& uses,
                                      std::span<const sharding> wishes) {
  constexpr int no_limit = std::numeric_limits<int>::max();
  search_state state;
  state.best = choose_state(g);
  plan_search(g, mesh, uses, wishes, state).run(no_limit, no_limit);
  return std::move(state.best.table);
}

}  // namespace gspmd::detail
