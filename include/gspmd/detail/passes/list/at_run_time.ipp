// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/list/at_run_time.hpp"
#include "gspmd/detail/passes/list/program_to_plan.hpp"

namespace gspmd::detail {

template <class Once>
graph program_to_plan_at_run_time(const graph& traced) {
  return program_to_plan(traced);
}
GSPMD_PLANNED_ONCE(graph program_to_plan_at_run_time<once>(const graph&));

}  // namespace gspmd::detail
