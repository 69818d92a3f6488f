// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/passes/choose/plan_search.hpp"
#include "gspmd/detail/passes/solve/program_problem.hpp"

namespace gspmd::detail {

/// Chooses the shardings of all values together, and takes the plan if it is better than the best plan so far. If both
/// plans take equal time, it takes the plan whose inputs use less memory. Sets search_state::bound.
///
/// Input: the best whole plan. Result: search_state::best, `preferred` and `bound`. A search by plan_search may follow.
/// Does nothing for programs that program_problem does not support.
class plan_solver {
 public:
  constexpr plan_solver(const solve_input& in, search_state& state) : in_(in), state_(state), scale_(state.best.time) {}

  constexpr void run() {
    state_.bound = state_.best.least;
    if (gainable(state_.best) <= 0 && !has_free_inputs()) return;
    const bool has_trees = solve(false);
    if (has_trees && state_.best.time - state_.bound > state_.bound / 256) solve(true);
    if (state_.bound > state_.best.time) state_.bound = state_.best.time;
  }

 private:
  /// Solves one of the two problems, and makes the plan of the solution. Returns true if the other problem differs.
  constexpr bool solve(bool is_star) {
    program_problem problem(in_.program, in_.mesh, in_.request, in_.uses, in_.asked, scale_, is_star);
    problem.build();
    pair_solver solver(problem.problem);
    solver.run(problem.problem.iterations());
    if (const auto found = scale_.time_of(solver.bound); !is_star && found > state_.bound) state_.bound = found;
    make_plan(problem, solver.best);
    return problem.has_trees;
  }
  constexpr void make_plan(const program_problem& problem, vec<int> solution) {
    const std::size_t count = in_.program.nodes.size();
    choose_state best = plan_of(problem, solution);
    bool is_improved = count <= most_values_for_alternatives;
    for (int round = 0; round < 4 && is_improved; ++round) {
      is_improved = false;
      for (int v = 0; v < static_cast<int>(solution.size()); ++v) {
        if (!problem.is_way(v)) continue;
        for (int x = 0; x < problem.problem.variables[v].states; ++x) {
          const int before = solution[v];
          if (x == before) continue;
          solution[v] = x;
          choose_state other = plan_of(problem, solution, &best);
          if (other.is_complete && other.is_better_than(best)) {
            best = std::move(other);
            is_improved = true;
          } else {
            solution[v] = before;
          }
        }
      }
    }
    const bool is_smaller =
        best.time == state_.best.time && best.forced <= state_.best.forced && input_bytes(best) < input_bytes(state_.best);
    if (!best.is_better_than(state_.best) && !is_smaller) return;
    state_.best = std::move(best);
    state_.preferred = problem.preferred(solution);
  }
  [[nodiscard]] constexpr bool has_free_inputs() const {
    for (const auto& n : in_.program.nodes)
      if (facts_of(n.op).made == origin::given && !n.annotated && n.state < 0) return true;
    return false;
  }
  /// Returns the bytes of the inputs of a plan on one device.
  [[nodiscard]] constexpr std::int64_t input_bytes(const choose_state& plan) const {
    std::int64_t bytes = 0;
    for (int i = 0; i < static_cast<int>(in_.program.nodes.size()); ++i) {
      const node& n = in_.program.nodes[i];
      if (facts_of(n.op).made != origin::given || !plan.book.has_forms(i)) continue;
      const auto elems = local_elements(in_.mesh, n.shape, plan.book.layout_of(plan.book.first_of(i)));
      bytes = saturating_add(bytes, saturating_multiply(elems, bytes_of(n.type)));
    }
    return bytes;
  }
  constexpr choose_state plan_of(const program_problem& problem, const vec<int>& solution,
                                 const choose_state* rival = nullptr) const {
    const std::size_t count = in_.program.nodes.size();
    vec<const operator_use*> ways(count, nullptr);
    for (std::size_t i = 0; i < count; ++i)
      if (problem.way_of[i] >= 0) ways[i] = &problem.way(static_cast<int>(i), solution);
    const vec<sharding> preferred = problem.preferred(solution);
    choose_state plan(in_.program);
    chooser choices(in_.program, in_.mesh, in_.request, in_.uses, span<const sharding>(preferred.data(), preferred.size()), plan);
    choices.fix(ways.data());
    constexpr int all = std::numeric_limits<int>::max();
    choices.run(all, all, rival);
    return plan;
  }

  const solve_input& in_;
  search_state& state_;
  price_scale scale_;
};

/// Runs plan_solver, unless the program is not supported (see program_problem).
constexpr void solve_plan(const solve_input& in, search_state& state) {
  if (program_problem::is_supported(in.program, in.request)) plan_solver(in, state).run();
}

}  // namespace gspmd::detail
