// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// A problem over pairs: each variable takes one of its states, each state has a cost, and each edge has a cost for
/// each pair of states of its two variables. A solution has the least sum.
///
/// Many states of a variable have equal costs on an edge, so an edge maps states to rows or columns of a table. Tables
/// and maps are shared by edges.
///
///   product p with 29 uses of the axes, sum s with 19: p makes 12 shardings of the value, s needs 9; the table has
///   12 rows and 9 columns
class pair_problem {
 public:
  struct cost_table {
    int row_count = 0, column_count = 0;
    vec<std::int64_t> of;  // row-major, at least 0
  };
  struct variable {
    int begin = 0, states = 0;                                   // of its costs in `costs`
    int first_back = 0, backs = 0, first_ahead = 0, aheads = 0;  // its edges in `edges_of`, see `connect`
  };
  struct edge {
    int from = 0, to = 0;          // variables, from < to
    int from_map = 0, to_map = 0;  // of the states of `from` to rows, and of `to` to columns
    int table = 0;
    int at_from = 0, at_to = 0;  // the messages of the solver
  };

  vec<variable> variables;
  vec<std::int64_t> costs;
  vec<edge> edges;
  vec<vec<int>> maps;
  vec<cost_table> tables;
  vec<int> edges_of;
  int messages = 0;  // the number of message entries of all edges

  constexpr int add_variable(const vec<std::int64_t>& of_states) {
    variables.push_back({static_cast<int>(costs.size()), static_cast<int>(of_states.size())});
    for (const auto c : of_states) costs.push_back(c);
    return static_cast<int>(variables.size()) - 1;
  }
  constexpr void add_edge(int from, int to, int from_map, int to_map, int table) {
    edge e{from, to, from_map, to_map, table, messages, messages + tables[table].row_count};
    messages += tables[table].row_count + tables[table].column_count;
    edges.push_back(e);
  }
  /// Lists the edges of every variable. Call this after the last edge was added.
  constexpr void connect() {
    for (const auto& e : edges) {
      ++variables[e.from].aheads;
      ++variables[e.to].backs;
    }
    int at = 0;
    for (auto& v : variables) {
      v.first_back = at;
      v.first_ahead = at + v.backs;
      at = v.first_ahead + v.aheads;
      v.backs = v.aheads = 0;
    }
    edges_of.resize(static_cast<std::size_t>(at), 0);
    for (int e = 0; e < static_cast<int>(edges.size()); ++e) {
      variable &from = variables[edges[e].from], &to = variables[edges[e].to];
      edges_of[from.first_ahead + from.aheads++] = e;
      edges_of[to.first_back + to.backs++] = e;
    }
  }

  /// Returns the most iterations of a solver: fewer in large problems, so that planning stays linear in the program.
  [[nodiscard]] constexpr int iterations() const {
    std::int64_t cells = 1;
    for (const auto& e : edges) cells += tables[e.table].row_count * tables[e.table].column_count;
    const auto most = std::int64_t{100'000'000} / cells;
    return static_cast<int>(most < 40 ? 40 : most > 400 ? 400 : most);
  }
  [[nodiscard]] constexpr std::int64_t cost_of(const edge& e, int from_state, int to_state) const {
    const cost_table& t = tables[e.table];
    return t.of[maps[e.from_map][from_state] * t.column_count + maps[e.to_map][to_state]];
  }
  [[nodiscard]] constexpr std::int64_t cost_of(const vec<int>& states) const {
    std::int64_t sum = 0;
    for (int v = 0; v < static_cast<int>(variables.size()); ++v) sum += costs[variables[v].begin + states[v]];
    for (const auto& e : edges) sum += cost_of(e, states[e.from], states[e.to]);
    return sum;
  }
};

/// Solves a pair_problem by sequential tree-reweighted message passing. Source: V. Kolmogorov, A new look at
/// reweighted message passing, 2015 (SRMP).
///
/// Input: a problem whose sum of costs is below 2^62. Result: `bound`, which no assignment is below, and `best`, the
/// states with the least sum found. Both are the same on every machine, because all numbers are integers.
///
/// Each edge holds two messages, which move costs from the edge to its two variables. For every assignment, the sum of
/// all costs stays equal, whatever the messages are. Therefore the sum of the least costs of all variables and edges is
/// a lower bound. A forward pass visits the variables in order. It collects the costs of the edges to earlier
/// variables, and shares them among the edges to later variables. A backward pass does the reverse. The bound never
/// falls.
class pair_solver {
 public:
  constexpr explicit pair_solver(const pair_problem& problem) : p_(problem), left_(problem.costs) {
    messages_.resize(static_cast<std::size_t>(problem.messages), 0);
    best.resize(problem.variables.size(), 0);
    improve(best);
    least = p_.cost_of(best);
  }

  std::int64_t bound = 0;
  vec<int> best;
  std::int64_t least = 0;  // the cost of `best`
  int iterations = 0;

  /// Runs at most `most` iterations. Ends earlier if the best assignment is within 1/4096 of the bound, or if the bound
  /// has stopped rising.
  constexpr void run(int most) {
    int still = 0;
    while (iterations < most && still < 16 && least - bound > bound / 4096) {
      ++iterations;
      count_planning(static_cast<std::int64_t>(p_.edges.size()));
      const int count = static_cast<int>(p_.variables.size());
      for (int v = 0; v < count; ++v) pass<true>(v);
      for (int v = count; v-- > 0;) pass<false>(v);
      std::int64_t sum = 0;
      for (int v = 0; v < count; ++v) sum += least_of(v);
      still = sum > bound + bound / 16384 ? 0 : still + 1;
      if (sum > bound) bound = sum;
      if (iterations > 4 && iterations % 4 != 0) continue;
      vec<int> found = rounded();
      improve(found);
      if (const auto cost = p_.cost_of(found); cost < least) {
        least = cost;
        best = std::move(found);
        still = 0;
      }
    }
  }

 private:
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  /// Returns the message of edge `e` to one of its variables: for `to_end`, to the variable that the edge ends at.
  [[nodiscard]] constexpr std::int64_t* message(const pair_problem::edge& e, bool to_end) {
    return messages_.data() + (to_end ? e.at_to : e.at_from);
  }
  [[nodiscard]] constexpr std::int64_t least_of(int v) const {
    const auto& of = p_.variables[v];
    std::int64_t least_cost = none;
    for (int x = 0; x < of.states; ++x)
      if (left_[of.begin + x] < least_cost) least_cost = left_[of.begin + x];
    return least_cost;
  }

  /// Collects the costs of the edges on one side of variable `v`, and shares its costs among the edges on the other
  /// side. If `Forward`, it collects from earlier variables.
  template <bool Forward>
  constexpr void pass(int v) {
    const auto& of = p_.variables[v];
    const int* const behind = p_.edges_of.data() + (Forward ? of.first_back : of.first_ahead);
    const int* const ahead = p_.edges_of.data() + (Forward ? of.first_ahead : of.first_back);
    const int behinds = Forward ? of.backs : of.aheads, aheads = Forward ? of.aheads : of.backs;
    for (int k = 0; k < behinds; ++k) collect<Forward>(p_.edges[behind[k]], of);
    if (aheads == 0) return;
    const std::int64_t shares = aheads > behinds ? aheads : behinds;
    now_.assign(left_.data() + of.begin, left_.data() + of.begin + of.states);
    for (int k = 0; k < aheads; ++k) share<Forward>(p_.edges[ahead[k]], of, shares);
  }
  template <bool Forward>
  constexpr void collect(const pair_problem::edge& e, const pair_problem::variable& of) {
    const auto& table = p_.tables[e.table];
    const std::int64_t* const other = message(e, !Forward);
    std::int64_t* const mine = message(e, Forward);
    const int size = Forward ? table.column_count : table.row_count;
    found_.resize(0);
    found_.resize(static_cast<std::size_t>(size), none);
    const std::int64_t* row = table.of.data();
    for (int a = 0; a < table.row_count; ++a, row += table.column_count) {
      if constexpr (Forward) {
        for (int b = 0; b < table.column_count; ++b)
          if (const auto cost = row[b] - other[a]; cost < found_[b]) found_[b] = cost;
      } else {
        for (int b = 0; b < table.column_count; ++b)
          if (const auto cost = row[b] - other[b]; cost < found_[a]) found_[a] = cost;
      }
    }
    for (int f = 0; f < size; ++f) {
      const auto now = found_[f];
      found_[f] = now - mine[f];
      mine[f] = now;
    }
    const vec<int>& map = p_.maps[Forward ? e.to_map : e.from_map];
    for (int x = 0; x < of.states; ++x) left_[of.begin + x] += found_[map[x]];
  }
  template <bool Forward>
  constexpr void share(const pair_problem::edge& e, const pair_problem::variable& of, std::int64_t shares) {
    const auto& table = p_.tables[e.table];
    std::int64_t* const mine = message(e, !Forward);
    const int size = Forward ? table.row_count : table.column_count;
    const vec<int>& map = p_.maps[Forward ? e.from_map : e.to_map];
    found_.resize(0);
    found_.resize(static_cast<std::size_t>(size), none);
    for (int x = 0; x < of.states; ++x)
      if (now_[x] < found_[map[x]]) found_[map[x]] = now_[x];
    for (int f = 0; f < size; ++f) {
      if (found_[f] == none) found_[f] = 0;  // no state has this row
      const auto rest = found_[f] % shares;
      found_[f] = found_[f] / shares - (rest < 0 ? 1 : 0);
      mine[f] -= found_[f];
    }
    for (int x = 0; x < of.states; ++x) left_[of.begin + x] -= found_[map[x]];
  }

  /// Returns an assignment: each variable takes the state that is best for the earlier variables, whose states are
  /// known, and for the messages of the later ones.
  [[nodiscard]] constexpr vec<int> rounded() {
    vec<int> states(p_.variables.size(), 0);
    for (int v = 0; v < static_cast<int>(p_.variables.size()); ++v) {
      const auto& of = p_.variables[v];
      now_.assign(p_.costs.data() + of.begin, p_.costs.data() + of.begin + of.states);
      add_known(of, states, true, false);
      for (int k = 0; k < of.aheads; ++k) {
        const auto& e = p_.edges[p_.edges_of[of.first_ahead + k]];
        const std::int64_t* const from_it = message(e, false);
        const vec<int>& map = p_.maps[e.from_map];
        for (int x = 0; x < of.states; ++x) now_[x] += from_it[map[x]];
      }
      states[v] = first_least(of.states);
    }
    return states;
  }
  /// Adds to `now_` the costs of the edges to variables whose states are known.
  constexpr void add_known(const pair_problem::variable& of, const vec<int>& states, bool backs, bool aheads) {
    for (int k = 0; backs && k < of.backs; ++k) {
      const auto& e = p_.edges[p_.edges_of[of.first_back + k]];
      for (int x = 0; x < of.states; ++x) now_[x] += p_.cost_of(e, states[e.from], x);
    }
    for (int k = 0; aheads && k < of.aheads; ++k) {
      const auto& e = p_.edges[p_.edges_of[of.first_ahead + k]];
      for (int x = 0; x < of.states; ++x) now_[x] += p_.cost_of(e, x, states[e.to]);
    }
  }
  [[nodiscard]] constexpr int first_least(int states) const {
    int first = 0;
    for (int x = 1; x < states; ++x)
      if (now_[x] < now_[first]) first = x;
    return first;
  }
  /// Changes one variable at a time while this lowers the cost. Takes the first of states with equal cost.
  constexpr void improve(vec<int>& states) {
    bool is_improved = true;
    for (int round = 0; round < 8 && is_improved; ++round) {
      is_improved = false;
      for (int v = 0; v < static_cast<int>(p_.variables.size()); ++v) {
        const auto& of = p_.variables[v];
        if (of.states == 1) continue;
        now_.assign(p_.costs.data() + of.begin, p_.costs.data() + of.begin + of.states);
        add_known(of, states, true, true);
        const int first = first_least(of.states);
        if (first == states[v]) continue;  // otherwise the cost falls, or stays and the number of the state falls
        states[v] = first;
        is_improved = true;
      }
    }
  }

  const pair_problem& p_;
  vec<std::int64_t> left_;      // by state: its cost and the messages to it
  vec<std::int64_t> messages_;  // see pair_problem::edge
  vec<std::int64_t> now_, found_;
};

}  // namespace gspmd::detail
