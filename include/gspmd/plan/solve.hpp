// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/solve/solve_plan.hpp"
#include "gspmd/plan/options.hpp"

/// The option `solve`: the planner chooses the shardings of all values together and computes a lower bound of the time.
/// `explain` and `dynamic::program::bound` report the bound. Include this header to use the option,
/// at run time. In a compiled program it is a compile error.
///
/// Annotated values keep their shardings. Inputs and outputs without annotation may get any sharding. The planner never
/// estimates a longer time for this plan than for the plan without the option. Planning takes longer. If `search` is
/// set too, the search continues from the solved plan.
///
/// Programs with a memory limit, explicit axes, manual regions, shard_alike or policies such as forbid_reshard get the
/// plan without this option, and no bound.
///
/// **Example.**
///
///     const auto p = dynamic::compile(train, m, {.solve = true}, x, w);
///     if (const auto b = p.bound()) std::printf("%g s, at least %g s\n", b->seconds, b->least_seconds);
namespace gspmd::detail {

template <>
inline constexpr choose_all_function choose_all_by<bool> = solve_plan;

}  // namespace gspmd::detail
