// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/solve/solve_plan.hpp"
#include "gspmd/dynamic/mesh.hpp"

namespace gspmd::dynamic {

/// Returns the mesh with solved plans: the planner chooses the shardings of all values together, and states a lower
/// bound of the time. `explain` and `program::bound` report it.
///
/// Annotated values keep their shardings. Inputs and outputs without annotation may get any sharding. The plan is never
/// slower than the plan without this option, by the planner's prices. Planning takes longer. Combined with
/// `mesh::searched`, a search continues from the solved plan. Programs with a memory limit, explicit axes, manual
/// regions, shard_alike or policies such as forbid_reshard get the plan without this option, and no bound.
///
/// **Example.**
///
///     const auto p = dynamic::compile(train, dynamic::solved(m), x, w);
///     if (const auto b = p.bound()) std::printf("%g s, at least %g s\n", b->seconds, b->least_seconds);
inline mesh solved(const mesh& m) {
  auto asked = m.info().request;
  asked.solve = detail::solve_plan;
  return m.with_request(asked);
}

}  // namespace gspmd::dynamic
