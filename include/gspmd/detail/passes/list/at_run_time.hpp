// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// Returns the program that is planned, as program_to_plan does.
template <class = once>
graph program_to_plan_at_run_time(const graph& traced);

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/list/at_run_time.ipp"
#endif
