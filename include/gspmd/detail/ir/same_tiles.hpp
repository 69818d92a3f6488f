// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// Axes as steps through the positions of a mesh: sizes and strides. Consecutive axes that form one step are joined.
struct axis_steps {
  inline_vec<std::int64_t, max_axes> sizes, strides;

  constexpr void add(const mesh_shape& mesh, int axis) {
    const std::int64_t size = mesh.sizes[axis];
    if (size == 1) return;
    std::int64_t stride = 1;
    for (int a = axis + 1; a < mesh.axis_count(); ++a) stride *= mesh.sizes[a];
    if (sizes.count > 0 && strides[sizes.count - 1] == size * stride) {
      sizes[sizes.count - 1] *= size;
      strides[sizes.count - 1] = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  friend constexpr bool operator==(const axis_steps& a, const axis_steps& b) {
    return a.sizes == b.sizes && a.strides == b.strides;
  }
};

constexpr bool same_order(const mesh_shape& a, const mesh_shape& b) {
  if (a.order == b.order) return true;
  for (std::int64_t i = 0; i < a.device_count(); ++i)
    if ((a.order != nullptr ? a.order[i] : i) != (b.order != nullptr ? b.order[i] : i)) return false;
  return true;
}

/// Does the same for meshes with different orders of devices, device by device. Returns false if a value is partial.
constexpr bool same_tiles_by_device(const mesh_shape& mesh_a, const sharding& a, const mesh_shape& mesh_b, const sharding& b,
                                    int rank) {
  if (mesh_a.size_of(a.partial) > 1 || mesh_b.size_of(b.partial) > 1) return false;
  for (int dim = 0; dim < rank; ++dim) {
    if (parts_of(mesh_a, a, dim) != parts_of(mesh_b, b, dim)) return false;
    for (std::int64_t d = 0; d < mesh_a.device_count(); ++d)
      if (part_index(mesh_a, a, dim, mesh_a.coordinates_of(d)) != part_index(mesh_b, b, dim, mesh_b.coordinates_of(d)))
        return false;
  }
  return true;
}

/// Returns true if two shardings, each on its mesh, give every device the same part of a tensor: [x] is
/// [x:(1)2,x:(2)2].
constexpr bool same_tiles(const mesh_shape& mesh_a, const sharding& a, const mesh_shape& mesh_b, const sharding& b, int rank) {
  if (mesh_a.device_count() != mesh_b.device_count()) return false;
  if (!same_order(mesh_a, mesh_b)) return same_tiles_by_device(mesh_a, a, mesh_b, b, rank);
  for (int dim = -1; dim < rank; ++dim) {  // -1: the axes over which it is partial
    axis_steps steps[2];
    for (int side = 0; side < 2; ++side) {
      const auto& mesh = side == 0 ? mesh_a : mesh_b;
      const auto& s = side == 0 ? a : b;
      if (dim < 0) {
        for (int axis = 0; axis < mesh.axis_count(); ++axis)
          if ((s.partial & axis_bit(axis)) != 0) steps[side].add(mesh, axis);
      } else {
        for (const auto& use : s.splits)
          if (use.dim == dim) steps[side].add(mesh, use.axis);
      }
    }
    if (!(steps[0] == steps[1])) return false;
    if (dim < 0 && steps[0].sizes.count > 0 && a.reduced_by != b.reduced_by) return false;
  }
  return true;
}

}  // namespace gspmd::detail
