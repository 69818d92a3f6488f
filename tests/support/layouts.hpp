// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "gspmd/detail/ir/annotation.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"

/// All meshes and all shardings, and shardings in the notation of the paper.
namespace layouts {

using namespace gspmd::detail;
using gspmd::monoid;

inline mesh_shape mesh_of(const std::vector<int>& sizes) {
  mesh_shape mesh;
  for (const int size : sizes) mesh.sizes.push_back(size);
  return mesh;
}
inline extents shape_of(const std::vector<std::int64_t>& sizes) {
  extents shape;
  for (const auto size : sizes) shape.push_back(size);
  return shape;
}

/// `split({{0, 1}, {}})`: dim 0 by the axes 0 and 1, dim 1 whole.
inline sharding split(std::initializer_list<std::initializer_list<int>> axes_of_dims) {
  sharding s;
  int dim = 0;
  for (const auto& axes : axes_of_dims) {
    for (const int axis : axes) s.add_split(axis, dim);
    ++dim;
  }
  return s;
}
inline sharding partial(sharding s, axis_mask axes, monoid kind = monoid::add) {
  s.partial = axes;
  s.reduced_by = kind;
  return s;
}
inline annotation open(annotation s, dim_mask dims) {
  s.open = dims;
  return s;
}

/// Returns all products of up to `max_axes` ordered sizes that are at most `max_devices`. Sizes of 1 are included.
inline std::vector<std::vector<int>> all_meshes(int max_devices, int max_axes) {
  std::vector<std::vector<int>> result{{}};
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (static_cast<int>(result[i].size()) == max_axes) continue;
    int devices = 1;
    for (const int size : result[i]) devices *= size;
    for (int size = 1; devices * size <= max_devices; ++size) {
      result.push_back(result[i]);
      result.back().push_back(size);
    }
  }
  return result;
}

namespace each {
inline void extend(const mesh_shape& mesh, int rank, int dim, const sharding& s, std::vector<sharding>& result) {
  if (dim == rank) {
    result.push_back(s);
    return;
  }
  extend(mesh, rank, dim + 1, s, result);
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    if ((s.split_axes() & axis_bit(axis)) != 0) continue;
    sharding next = s;
    next.add_split(axis, dim);
    extend(mesh, rank, dim, next, result);
  }
}
}  // namespace each

/// Returns all ways to split `rank` dims by axes of the mesh, in every order of the axes. The first one is replicated.
inline std::vector<sharding> all_shardings(const mesh_shape& mesh, int rank) {
  std::vector<sharding> result;
  each::extend(mesh, rank, 0, sharding{}, result);
  return result;
}

/// Returns a sharding as text: `{xy,-}`.
inline std::string text_of(const sharding& s, int rank) {
  std::string t = "{";
  for (int d = 0; d < rank; ++d) {
    t += d > 0 ? "," : "";
    for (const auto& use : s.splits)
      if (use.dim == d) t += "xyzabcde"[use.axis];
    if (!s.is_split(d)) t += '-';
  }
  t += '}';
  if (s.partial != 0) t += " partial " + std::to_string(s.partial);
  return t;
}

/// Returns the bytes that one device sends on the planner's path.
inline std::int64_t reshard_bytes(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                                  std::int64_t bytes_per_elem) {
  return price_of_reshard(mesh, {}, global, from, to, bytes_per_elem).bytes;
}

}  // namespace layouts
