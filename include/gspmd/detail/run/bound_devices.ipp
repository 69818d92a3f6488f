// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/run/bound_devices.hpp"

namespace gspmd::detail {

template <class Once>
[[gnu::cold]] error no_memory_for(const plan_view& plan, int device, const no_memory& e) {
  return error(e.text() + "; the plan holds " + std::to_string(peak_bytes(plan)) + " bytes on a device at its peak", device);
}
GSPMD_COMPILED_ONCE(error no_memory_for<once>(const plan_view&, int, const no_memory&));

}  // namespace gspmd::detail
