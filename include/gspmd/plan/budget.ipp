// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/plan/budget.hpp"

namespace gspmd::detail {

template <class Once>
traffic_count count_traffic_at_run_time(const plan_view& p, const collective_filter& which) {
  return count_traffic_of(p, which);
}
GSPMD_COMPILED_ONCE(traffic_count count_traffic_at_run_time<once>(const plan_view&, const collective_filter&));

}  // namespace gspmd::detail
