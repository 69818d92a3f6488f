// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/list/make_plan.hpp"

namespace gspmd::detail {

template <class Once>
plan plan_at_run_time(const graph& g, const mesh_shape& mesh, const plan_request& request) {
  return plan_again(g, mesh, request);
}
GSPMD_PLANNED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&, const plan_request&));

}  // namespace gspmd::detail
