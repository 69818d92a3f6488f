// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/list/compute_again.hpp"

namespace gspmd::detail {

template <class Once>
plan plan_once(const graph& g, const mesh_shape& mesh, const plan_request& request) {
  const pass_results results(g, mesh, request);
  plan made;
  made.broken = results.of<refuse_pass>();
  return made.broken != mistake::none ? made : results.take_plan();
}
GSPMD_PLANNED_ONCE(plan plan_once<once>(const graph&, const mesh_shape&, const plan_request&));

}  // namespace gspmd::detail
