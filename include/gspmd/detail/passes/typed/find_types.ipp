// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/typed/find_types.hpp"

namespace gspmd::detail {

template <class Once>
void find_types_at_run_time(graph& g, bool annotate) {
  find_types(g, annotate);
}
GSPMD_PLANNED_ONCE(void find_types_at_run_time<once>(graph&, bool));

}  // namespace gspmd::detail
