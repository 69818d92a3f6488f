// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/automatic_axes.hpp"

namespace gspmd::detail {

template <class Once>
void plan_automatic_axes_at_run_time(graph& g) {
  const along_automatic along(g);
  const mesh_shape mesh = without_explicit_axes(*g.mesh);
  g = with_automatic_plan(g, along, pass_results(along.program, mesh, asked_of_automatic(*g.mesh)));
}
GSPMD_PLANNED_ONCE(void plan_automatic_axes_at_run_time<once>(graph&));

}  // namespace gspmd::detail
