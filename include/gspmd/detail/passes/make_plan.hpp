// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/peak_memory.hpp"
#include "gspmd/detail/passes/pipeline.hpp"
#include "gspmd/detail/passes/save_memory.hpp"
#include "gspmd/detail/passes/search_pass.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// No limit of a compiler holds. Apart, because Clang asks for it before pass_results is complete.
struct unlimited {
  static constexpr bool is_long() { return false; }
};

/// The results of the passes, in ordinary memory.
class pass_results : public unlimited {
 public:
  using chosen_by = search_pass;  // of any mesh: it does nothing where none asks for it
  constexpr pass_results(const graph& g, const mesh_shape& mesh) : graph_(g), mesh_(mesh) {
    boost::mp11::mp_for_each<passes>([this]<class Pass>(Pass) {
      if constexpr (requires { Pass::run(*this); }) {
        mine<Pass>() = Pass::run(*this);
      } else {
        auto state = Pass::begin(*this);
        Pass::go_on(*this, state, {});
        mine<Pass>() = std::move(state);
      }
    });
  }
  [[nodiscard]] constexpr const graph& program() const { return graph_; }
  [[nodiscard]] constexpr const mesh_shape& mesh() const { return mesh_; }
  template <class Pass>
  [[nodiscard]] constexpr const typename Pass::result& of() const {
    return std::get<result_of<Pass>>(results_).value;
  }
  /// The same, which is gone then: what is as large as the program is not copied.
  template <class Pass>
  [[nodiscard]] constexpr typename Pass::result take() const {
    return std::move(std::get<result_of<Pass>>(results_).value);
  }
  /// The best plan; the others are gone then.
  constexpr plan take_plan() {
    plan& as_written = mine<place_pass<false>>();
    plan& ordered = mine<place_pass<true>>();
    const bool is_better = of<order_pass>().is_any && is_smaller(plan_view(ordered), plan_view(as_written));
    return std::move(is_better ? ordered : as_written);
  }

 private:
  template <class Pass>
  struct result_of {
    typename Pass::result value;
  };
  template <class Pass>
  constexpr typename Pass::result& mine() {
    return std::get<result_of<Pass>>(results_).value;
  }
  const graph& graph_;
  const mesh_shape& mesh_;
  mutable boost::mp11::mp_rename<boost::mp11::mp_transform<result_of, passes>, std::tuple> results_;  // see take
};

/// The first plan that fits into the memory of a device.
constexpr plan plan_within_memory(const graph& g, const mesh_shape& mesh) {
  plan made = pass_results(g, mesh).take_plan();
  if (mesh.most_memory <= 0 || !made.error.empty()) return made;
  auto least = peak_bytes(plan_view(made));
  mesh_shape saving = mesh;
  while (least > mesh.most_memory && saving.saving++ < most_saving) {
    plan other = pass_results(g, saving).take_plan();
    if (!other.error.empty() || peak_bytes(plan_view(other)) >= least) continue;
    made = std::move(other);
    least = peak_bytes(plan_view(made));
  }
  if (least > mesh.most_memory) {
    made.error = too_large(least, mesh.most_memory);
    made.broken = mistake::memory;
  }
  return made;
}

template <class = once>
plan plan_at_run_time(const graph& g, const mesh_shape& mesh) {
  return plan_within_memory(g, mesh);
}
GSPMD_PLANNED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&));

/// Returns the local program for what completion found, for those who look at it alone.
constexpr local_program partition_graph(const graph& g, const mesh_shape& mesh, span<const sharding> completed) {
  const value_uses uses = uses_of(g);
  const auto asked = asked_for(g, mesh, completed);
  return emit_program(g, mesh, uses, choose_plan(g, mesh, uses, completed, {asked.data(), asked.size()}).best.table);
}

/// The whole way from a graph to what every device runs.
// Apart from pipeline.hpp, because it instantiates much that a program compiled for a mesh does without.
constexpr plan make_plan(const graph& g, const mesh_shape& mesh) {
  if (std::is_constant_evaluated()) return plan_within_memory(g, mesh);
  return plan_at_run_time(g, mesh);
}

}  // namespace gspmd::detail
