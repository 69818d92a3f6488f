// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Lists the plans that a plan was compared with. Plans the program once more, so only callers that need the reasons
/// pay for them.
class plan_reasons {
 public:
  plan_reasons(const graph& g, const mesh_shape& mesh, const plan_request& request)
      : graph_(g),
        mesh_(mesh),
        passes_(g, mesh_, request),
        uses_(passes_.of<uses_pass>()),
        found_(passes_.of<search_pass>()),
        changes_(g, mesh_, uses_, passes_.of<narrow_pass>().of, found_.preferred) {}
  plan_reasons(const plan_reasons&) = delete;
  plan_reasons& operator=(const plan_reasons&) = delete;

  /// Returns the time of the plan in picoseconds.
  [[nodiscard]] std::int64_t time() const { return found_.best.time; }
  /// Returns every way to run the operator of node `i`, after the choices for the operators before it. Returns an empty
  /// list if node `i` is not an operator on shards.
  [[nodiscard]] vec<tried_use> ways(int i) {
    vec<tried_use> found;
    if (graph_.is_explicit || facts_of(at(i).op).made != origin::shards || uses_.needed[i] == 0) return found;
    const bool is_solved = found_.bound >= 0 && !graph_.has_regions;  // then choices by preference would differ
    choose_state again = is_solved ? choose_state(found_.best, i) : choose_state(graph_);
    again.table.as_written = found_.best.table.as_written;
    chooser choices(graph_, mesh_, passes_.request(), uses_, span_of(found_.preferred), again);
    if (i > again.next) choices.run(i, no_limit);
    choices.record(&found);
    if (again.next == i) choices.run(1, no_limit);
    return found;
  }
  /// Returns true if the plan runs node `i` in this way.
  [[nodiscard]] bool is_chosen(int i, const operator_use& way) const {
    const node_choice& choice = found_.best.table.nodes[i];
    if (choice.result != way.result || choice.moved != way.moved) return false;
    for (int k = 0; k < way.wanted.count; ++k)
      if (found_.best.table.wanted[choice.wanted + k] != way.wanted[k]) return false;
    return true;
  }
  /// A plan with another sharding of a value and of the values that elementwise operators connect with it.
  struct other_plan {
    sharding lies;
    std::int64_t time = 0;
    int forced = 0;
  };
  /// Returns the plans with a sharding of node `i` that a neighbour prefers. Returns an empty list if
  /// its sharding is fixed.
  [[nodiscard]] vec<other_plan> others(int i) {
    vec<other_plan> found;
    if (!changes_.is_free(i)) return found;
    const auto run = changes_.run_of(i);
    for (const auto& s : changes_.candidates_for(run)) {
      vec<sharding> tried = found_.preferred;
      for (const int member : run) tried[member] = s;
      choose_state trial(graph_);
      trial.table.as_written = found_.best.table.as_written;
      chooser(graph_, mesh_, passes_.request(), uses_, span_of(tried), trial).run(no_limit, no_limit);
      found.push_back({s, trial.time, trial.forced});
    }
    return found;
  }

 private:
  static constexpr int no_limit = std::numeric_limits<int>::max();

  [[nodiscard]] const node& at(int i) const { return graph_.nodes[static_cast<std::size_t>(i)]; }
  static span<const sharding> span_of(const vec<sharding>& list) { return {list.data(), list.size()}; }

  const graph& graph_;
  mesh_shape mesh_;
  pass_results passes_;
  const value_uses& uses_;
  const search_state& found_;
  plan_changes changes_;
};

}  // namespace gspmd::detail
