// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/support/precompiled.hpp"

/// The passes of the planner as a list for display.
namespace gspmd {

namespace dynamic {

/// A pass of the planner and its result for a program, as text. The text is empty if the pass had nothing to do.
struct pass_made {
  std::string name, made;
};

}  // namespace dynamic

namespace detail {

/// Returns the result of a pass.
template <class Pass>
typename Pass::result result_at_run_time(const graph& g, const mesh_shape& mesh, const plan_request& request,
                                         std::vector<split_origin>* origins = nullptr) {
  return pass_results(g, mesh, request, origins).template take<Pass>();
}

/// Returns the name of a pass after program_to_plan, derived from its type: `row blocks` for row_blocks_pass.
template <class Pass>
std::string name_of_pass() {
  std::string name = __PRETTY_FUNCTION__;
  name.erase(0, name.find("Pass = ") + 7);
  name.resize(name.find_first_of(";]"));
  if (const auto space = name.rfind("::"); space != std::string::npos) name.erase(0, space + 2);  // GCC omits its own
  if (const auto end = name.find("_pass"); end != std::string::npos) name.erase(end, 5);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

inline std::string counted(std::size_t count, const char* what) {
  return count == 0 ? "" : std::to_string(count) + ' ' + what + (count == 1 ? "" : "s");
}
// The results of the passes as text.
inline std::string words_of(const layouts& made) { return counted(made.of.size(), "sharding"); }
inline std::string words_of(const value_uses& made) { return counted(made.reads.size(), "read"); }
inline std::string words_of(const whole_plans& made) { return counted(made.best.table.nodes.size(), "choice"); }
inline std::string words_of(const local_program& made) { return counted(made.ops.size(), "instruction"); }
inline std::string words_of(const steps_result& made) { return counted(made.steps.steps.size(), "step"); }
inline std::string words_of(const step_order& made) { return made.is_any ? counted(made.of.size(), "step") : ""; }
inline std::string words_of(const plan& made) {
  return made.steps.empty() ? "" : counted(static_cast<std::size_t>(made.arena_bytes), "byte");
}

/// Returns the result of a pass before the plan as text. The passes must be called in their order, because a later pass
/// takes results of earlier passes. A pass that changes the result of the pass before it has no result of its own. In a
/// planned program nothing is refused, and no axis is left to cut.
template <class Pass>
std::string made_by(const pass_results& results) {
  if constexpr (std::is_same_v<Pass, join_pass>) {
    const auto& ops = results.of<emit_pass>().ops;
    return counted(static_cast<std::size_t>(std::count_if(ops.begin(), ops.end(), [](const auto& op) { return op.joined; })),
                   "collective");
  } else if constexpr (std::is_same_v<Pass, row_blocks_pass>) {
    return counted(table_of<row_blocks>(results.of<steps_pass>().steps).size(), "run");
  } else if constexpr (std::is_same_v<Pass, search_pass>) {
    return results.request().is_searched ? "a search" : "";
  } else if constexpr (requires { words_of(results.of<Pass>()); } && !std::is_same_v<Pass, overlap_pass>) {
    return words_of(results.of<Pass>());
  } else {
    return {};
  }
}

/// Returns all passes with their results for a program: as it was written, and as it is planned.
template <class = once>
std::vector<dynamic::pass_made> list_of_passes(const graph& written, const graph& planned, const mesh_shape& mesh,
                                               const plan_request& request);

}  // namespace detail
}  // namespace gspmd

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/list/pass_list.ipp"
#endif

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/list/pass_list_instances.ipp"
#endif
