// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "gspmd/detail/passes/plan_passes.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Places a plan in memory, its steps in a better order if there is one.
constexpr void place_in_order(plan& p, vec<int> base) {
  vec<int> order;
  order.resize(p.steps.size(), 0);
  if (!step_orderer(plan_view(p), base).run(order.data())) {
    place_in_memory(p, std::move(base));
    return;
  }
  plan ordered = p;
  put_in_order(ordered, order);
  place_in_memory(ordered, base);
  place_in_memory(p, std::move(base));
  if (is_smaller(ordered, p)) p = std::move(ordered);
}

/// The whole way from a graph to what every device runs.
// Apart from plan_passes.hpp, because it instantiates much that a program compiled for a mesh does without.
constexpr plan make_plan(const graph& g, const mesh_shape& mesh) {
  vec<int> base;
  plan p = plan_without_memory(g, mesh, base);
  if (p.error.empty()) place_in_order(p, std::move(base));
  return p;
}

}  // namespace gspmd::detail
