// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/manual_regions.hpp"

namespace gspmd::detail {

template <class Once>
void type_local_at_run_time(graph& g, bool annotate) {
  type_local(g, annotate);
}
GSPMD_PLANNED_ONCE(void type_local_at_run_time<once>(graph&, bool));

}  // namespace gspmd::detail
