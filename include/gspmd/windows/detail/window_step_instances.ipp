// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/windows/detail/window_step.hpp"

namespace gspmd::detail {

GSPMD_KERNELS_ONCE(void at_run_time<kernels::reduce_window>::make_ready(const plan_view&, const plan_step&, ready_step&,
                                                                        prepared_objects&));
GSPMD_KERNELS_ONCE(void at_run_time<kernels::select_and_scatter>::make_ready(const plan_view&, const plan_step&, ready_step&,
                                                                             prepared_objects&));

}  // namespace gspmd::detail
