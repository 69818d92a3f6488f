// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/list/next_try.hpp"
#include "gspmd/detail/passes/list/pipeline.hpp"
#include "gspmd/detail/passes/list/search_pass.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// The results of the passes in ordinary memory. Each result is made at its first use.
template <class Off>
class results_without {
 public:
  using off = Off;
  using chosen_by = search_pass;  // for every mesh: it does nothing unless the mesh requests a search
  constexpr results_without(const graph& of, const mesh_shape& mesh, const plan_request& request = {},
                            std::vector<split_origin>* origins = nullptr)
      : graph_(of), mesh_(mesh), request_(request), origins_(origins) {}
  [[nodiscard]] constexpr const graph& program() const { return graph_; }
  [[nodiscard]] constexpr const mesh_shape& mesh() const { return mesh_; }
  [[nodiscard]] constexpr const plan_request& request() const { return request_; }
  [[nodiscard]] constexpr std::vector<split_origin>* origins() const { return origins_; }
  static constexpr bool is_long() { return false; }  // no limit of a compiler applies
  template <class Pass>
  [[nodiscard]] constexpr const typename Pass::result& of() const {
    return made<Pass>();
  }
  /// Returns the result of a pass by moving it, so that a large result is not copied. The next use makes the result
  /// again.
  template <class Pass>
  [[nodiscard]] constexpr typename Pass::result take() const {
    typename Pass::result& taken = made<Pass>();
    std::get<result_of<Pass>>(results_).is_made = false;
    return std::move(taken);
  }
  /// Takes the better plan: with the steps reordered, or in program order.
  [[nodiscard]] constexpr plan take_plan() const {
    const plan& ordered = of<place_pass<true>>();  // before as_written takes the steps
    const plan& as_written = of<place_pass<false>>();
    const bool is_better = of<order_pass>().is_any && is_smaller(plan_view(ordered), plan_view(as_written));
    return is_better ? take<place_pass<true>>() : take<place_pass<false>>();
  }

 private:
  template <class Pass>
  struct result_of {
    typename Pass::result value;
    bool is_made = false;
  };
  template <class Pass>
  constexpr typename Pass::result& made() const {
    auto& mine = std::get<result_of<Pass>>(results_);
    if (mine.is_made || Off::template has<Pass>) return mine.value;
    mine.is_made = true;
    count_planning(static_cast<std::int64_t>(graph_.nodes.size()));
    if constexpr (requires { Pass::run(*this); }) {
      mine.value = Pass::run(*this);
    } else {
      auto state = Pass::begin(*this);
      Pass::go_on(*this, state, {});
      mine.value = std::move(state);
    }
    return mine.value;
  }
  const graph& graph_;
  const mesh_shape& mesh_;
  plan_request request_;
  std::vector<split_origin>* origins_;
  mutable boost::mp11::mp_rename<boost::mp11::mp_transform<result_of, passes>, std::tuple> results_;
};

using pass_results = results_without<without<>>;

/// Returns the best plan of a program.
///
/// Tries follow each other as next_try.hpp decides. If a reshape needs a cut axis, `cut_axis(cut)` returns the program
/// on the mesh with the cut. If `cut_axis` is null, no axis is cut. The plan has the first level of saving that fits
/// into the memory of a device. If no level fits, the plan is broken by mistake::memory.
template <class Off = without<>, class CutAxis = std::nullptr_t>
constexpr plan plan_again(const graph& g, mesh_shape mesh, plan_request request, CutAxis cut_axis = nullptr) {
  const graph* program = &g;
  plan best;
  std::int64_t least = 0;
  saving_search search;
  for (auto next = next_try::way::on_cut_mesh; next != next_try::way::none;) {
    const results_without<Off> results(*program, mesh, request);
    planned_try found;
    plan made;
    if constexpr (!std::is_null_pointer_v<CutAxis>)
      if (request.saving == 0 && may_cut_axes(program->nodes)) found.cut = results.template of<cut_pass>();
    if (found.cut.axis < 0) {
      made.broken = results.template of<refuse_pass>();
      found.is_refused = made.broken != mistake::none;
      if (found.is_refused) made.error = refuse_pass::why(results);
      else made = results.take_plan();
      if (const auto& chosen = results.template of<search_pass>(); chosen.bound >= 0) {
        made.times = {chosen.best.time, chosen.bound};
      }
      if (made.broken == mistake::facts) made.error = why_refused_steps(plan_view(made));
      found.holds = request.most_memory > 0 ? peak_bytes(plan_view(made)) : 0;
    }
    const auto after_it = after(found, request, least, search, program->nodes);
    next = after_it.is;
    search = after_it.search;
    if (after_it.was_best) {
      best = std::move(made);
      least = found.holds;
    }
    if constexpr (!std::is_null_pointer_v<CutAxis>)
      if (next == next_try::way::on_cut_mesh) {
        program = cut_axis(found.cut);
        mesh = program->mesh->shape;
        request = program->mesh->request;
      }
    if (next == next_try::way::saving_more) request.saving = search.saving;
  }
  if (best.broken == mistake::none && request.most_memory > 0 && least > request.most_memory) {
    best.error = too_large(least, request.most_memory);
    best.broken = mistake::memory;
  }
  return best;
}

template <class = once>
plan plan_at_run_time(const graph& g, const mesh_shape& mesh, const plan_request& request);

/// Returns the plan of a graph on the mesh as it is. A template, because `plan_again` is instantiated in each file that
/// uses it.
// The builtin replaces std::is_constant_evaluated, because GCC at -O0 would compile both branches with the latter.
template <class = once>
constexpr plan make_plan(const graph& g, const mesh_shape& mesh, const plan_request& request = {}) {
  return __builtin_is_constant_evaluated() ? plan_again(g, mesh, request) : plan_at_run_time(g, mesh, request);
}

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/list/make_plan.ipp"
#endif
