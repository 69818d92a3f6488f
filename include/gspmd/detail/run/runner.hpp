// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Runs the steps of a plan one after the other (plan_runner.hpp).
template <class = once>
void run_plan(const plan_view& plan, const ready_step* ready, const devices_here& devices);

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/runner.ipp"
#endif
