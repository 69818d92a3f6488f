// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/ready_step.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Runs a plan for a checked mesh (equality_check.hpp).
template <class = once>
void run_plan_checked(const plan_view& plan, const mesh_info& named, const ready_step* ready, const devices_here& devices,
                      ready_step::joint_function move);

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/run/checked_run.ipp"
#endif
