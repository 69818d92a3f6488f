// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/mesh_info.hpp"

namespace gspmd::detail {

/// A cut of a mesh axis into (outer, size / outer). A negative `axis` means no cut.
struct axis_cut {
  int axis = -1;
  std::int32_t outer = 1;
};

constexpr text part_name(const mesh_info& mesh, axis_cut cut, bool is_major) {
  const auto whole = sub_axis::of(mesh.name(cut.axis));
  return text(whole.base) << ":(" << (is_major ? whole.before : whole.before * cut.outer) << ')'
                          << (is_major ? cut.outer : mesh.shape.sizes[cut.axis] / cut.outer);
}

/// Returns true if the names of the parts are short enough and the mesh can have one more axis.
constexpr bool can_cut(const mesh_info& mesh, axis_cut cut) {
  const text outer = part_name(mesh, cut, true);
  const text inner = part_name(mesh, cut, false);
  return mesh.shape.axis_count() < max_axes && outer.view().size() <= max_name && inner.view().size() <= max_name;
}

constexpr axis_list cut_axis(const axis_list& axes, int axis) {
  axis_list result;
  for (const auto a : axes) {
    result.push_back(static_cast<std::int8_t>(a > axis ? a + 1 : a));
    if (a == axis) result.push_back(static_cast<std::int8_t>(axis + 1));
  }
  return result;
}

/// Returns the mesh with one axis cut: `x` -> `x:(1)2`, `x:(2)2`; `x:(2)4` -> `x:(2)2`, `x:(4)2`
constexpr mesh_info cut_axis(const mesh_info& mesh, axis_cut cut) {
  mesh_info result;
  result.request = mesh.request;
  for (int a = 0; a < mesh.shape.axis_count(); ++a)
    if ((mesh.automatic_axes & axis_bit(a)) != 0)
      result.automatic_axes |= (a == cut.axis ? axis_mask{3} : axis_mask{1}) << (a > cut.axis ? a + 1 : a);
  for (int a = 0; a < mesh.shape.axis_count(); ++a) {
    if (a != cut.axis) {
      result.add_axis(mesh.name(a), mesh.shape.sizes[a]);
      continue;
    }
    const text outer = part_name(mesh, cut, true);
    const text inner = part_name(mesh, cut, false);
    result.add_axis(outer.view(), cut.outer);
    result.add_axis(inner.view(), mesh.shape.sizes[a] / cut.outer);
  }
  result.views = mesh.views;
  for (auto& v : result.views) v.parts = cut_axis(v.parts, cut.axis);
  result.shape.order = mesh.shape.order;  // still row-major over the same coordinates
  result.shape.position = mesh.shape.position;
  auto& links = result.request.network.links;
  if (cut.axis < links.count && links.count < max_axes) links.insert(cut.axis, link_rate(links[cut.axis]));
  return result;
}

}  // namespace gspmd::detail
