// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/layouts/xla_sharding.hpp"

namespace gspmd::detail {

template <class Once>
resolved_sharding resolve_xla_at_run_time(const mesh_info& mesh, std::string_view written, int rank) {
  return resolve_xla(mesh, written, rank);
}
GSPMD_PLANNED_ONCE(resolved_sharding resolve_xla_at_run_time<once>(const mesh_info&, std::string_view, int));

}  // namespace gspmd::detail
