// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/plan_runner.hpp"
#include "gspmd/detail/run/runner.hpp"

namespace gspmd::detail {

template <class Once>
void run_plan(const plan_view& plan, const ready_step* ready, const devices_here& devices) {
  no_checks none;
  run_plan(plan, ready, devices, none);
}
GSPMD_COMPILED_ONCE(void run_plan<once>(const plan_view&, const ready_step*, const devices_here&));

}  // namespace gspmd::detail
