// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/passes/typed/find_types.hpp"

namespace gspmd::detail {

GSPMD_PLANNED_ONCE(node_order run_at_run_time<check_types_pass>(graph&));
GSPMD_PLANNED_ONCE(node_order run_at_run_time<types_pass>(graph&));

}  // namespace gspmd::detail
