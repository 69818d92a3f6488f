// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/passes/list/pass_list.hpp"

namespace gspmd::detail {

GSPMD_PLANNED_ONCE(complete_pass::result result_at_run_time<complete_pass>(const graph&, const mesh_shape&, const plan_request&,
                                                                           std::vector<split_origin>*));
GSPMD_PLANNED_ONCE(emit_pass::result result_at_run_time<emit_pass>(const graph&, const mesh_shape&, const plan_request&,
                                                                   std::vector<split_origin>*));

}  // namespace gspmd::detail
