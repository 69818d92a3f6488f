// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// Identifies the group of a device over some axes of a mesh. A communicator uses it to find the data that it has set
/// up for the group. The key copies the device order: a mesh made at run time can be destroyed, and another mesh can
/// reuse its memory.
struct group_key {
  coordinates sizes;
  axis_mask axes = 0;
  std::vector<std::int32_t> order;  // empty: the identity

  group_key(const mesh_shape& mesh, axis_mask over) : sizes(mesh.sizes), axes(over) {
    if (mesh.order != nullptr) order.assign(mesh.order, mesh.order + mesh.device_count());
  }

  [[nodiscard]] bool names(const mesh_shape& mesh, axis_mask over) const {
    if (axes != over || !(sizes == mesh.sizes) || order.empty() != (mesh.order == nullptr)) return false;
    return mesh.order == nullptr || std::equal(order.begin(), order.end(), mesh.order);
  }
};

/// Returns the devices of the group of the device at `me`, in the order of the members.
inline std::vector<int> members_of(const mesh_shape& mesh, axis_mask axes, const coordinates& me) {
  std::vector<int> devices(static_cast<std::size_t>(mesh.size_of(axes)));
  for (std::size_t j = 0; j < devices.size(); ++j)
    devices[j] = mesh.device_at(group_member(mesh, axes, me, static_cast<std::int64_t>(j)));
  return devices;
}

}  // namespace gspmd::detail
