// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/passes/carried/weight_updates.hpp"

namespace gspmd::detail {

GSPMD_PLANNED_ONCE(node_order run_at_run_time<place_carried_pass>(graph&, const vec<sharding>&));

}  // namespace gspmd::detail
