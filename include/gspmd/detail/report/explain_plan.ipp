// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/report/explain_plan.hpp"

namespace gspmd::detail {

template <class Once>
[[gnu::cold]] std::string explain_plan(const plan_view& plan, const mesh_info& mesh, const explained_part& part) {
  return plan_explainer(plan, mesh, part).text();
}
GSPMD_COMPILED_ONCE(std::string explain_plan<once>(const plan_view&, const mesh_info&, const explained_part&));

}  // namespace gspmd::detail
