// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/compose_movements.hpp"
#include "gspmd/detail/passes/defer_reshards.hpp"
#include "gspmd/detail/passes/ghost_zones.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// The program that is planned: what its outputs need, in order.
constexpr graph program_to_plan(const graph& traced) {
  graph g = canonical_order(traced);
  if (g.find_types != nullptr && compose_movements(g)) g = canonical_order(g);
  if (g.type_local != nullptr) {
    g.type_local(g, true);
    if (!g.failed()) g = canonical_order(g);
  } else if (g.find_types != nullptr) {
    g.find_types(g, true);
  }
  if (g.find_types != nullptr || g.failed()) return g;
  if (asks_for_ghost_zones(g)) {
    const graph widened = with_ghost_zones(g);
    if (widened.failed()) return widened;
    g = canonical_order(widened);
  }
  if (compose_movements(g)) g = canonical_order(g);
  defer_reshards(g);
  return g;
}

template <class = once>
graph program_to_plan_at_run_time(const graph& traced) {
  return program_to_plan(traced);
}
GSPMD_PLANNED_ONCE(graph program_to_plan_at_run_time<once>(const graph&));

}  // namespace gspmd::detail
