// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/checked_run.hpp"
#include "gspmd/detail/run/equality_check.hpp"
#include "gspmd/detail/run/plan_runner.hpp"

namespace gspmd::detail {

template <class Once>
void run_plan_checked(const plan_view& plan, const mesh_info& named, const ready_step* ready, const devices_here& devices,
                      ready_step::joint_function move) {
  equality_check<> checks(plan, named, devices, move);
  checks.look_at_inputs();
  run_plan(plan, ready, devices, checks);
}
GSPMD_COMPILED_ONCE(void run_plan_checked<once>(const plan_view&, const mesh_info&, const ready_step*, const devices_here&,
                                                ready_step::joint_function));

}  // namespace gspmd::detail
