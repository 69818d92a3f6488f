// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/compose_movements.hpp"
#include "gspmd/detail/passes/ghost_zones.hpp"

namespace gspmd::detail {

/// The program that is planned: what its outputs need, in order.
constexpr graph program_to_plan(const graph& traced) {
  graph g = canonical_order(traced);
  if (g.find_types != nullptr) {
    g.find_types(g, true);
    return g;
  }
  if (ghost_zones::are_wished(g)) {
    const ghost_zones widened(g);
    if (widened.result.failed()) return widened.result;
    g = canonical_order(widened.result);
  }
  if (!compose_movements(g)) return g;  // as a conditional expression, GCC 12 frees what it returns
  graph composed = canonical_order(g);
  return composed;
}

}  // namespace gspmd::detail
