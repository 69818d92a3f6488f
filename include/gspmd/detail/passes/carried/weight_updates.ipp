// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/carried/weight_updates.hpp"

namespace gspmd::detail {

template <class Once>
void place_carried_at_run_time(graph& g, const vec<sharding>& layouts) {
  place_carried(g, layouts);
}
GSPMD_PLANNED_ONCE(void place_carried_at_run_time<once>(graph&, const vec<sharding>&));

}  // namespace gspmd::detail
