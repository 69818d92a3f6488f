// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// Annotations that a search tries for an input.
namespace gspmd::detail {

/// The annotation of an input: for each axis of the mesh the dim that it splits, or -1. Without entries the input has
/// no annotation, and the planner decides.
///
///    {0, -1}    [x, _] on a mesh of x and y
///    {1, 1}     [_, x,y], or with from_last [_, y,x]
///    {}         none
struct input_layout {
  inline_vec<int, max_axes> dims;
  bool from_last = false;  // if several axes split one dim, the last axis of the mesh is major

  constexpr input_layout() = default;
  constexpr input_layout(int axes, int dim) : dims(axes, dim) {}
  friend constexpr bool operator==(const input_layout&, const input_layout&) = default;

  [[nodiscard]] constexpr bool empty() const { return dims.empty(); }
  [[nodiscard]] constexpr int size() const { return dims.count; }
  constexpr int& operator[](int axis) { return dims[axis]; }
  constexpr int operator[](int axis) const { return dims[axis]; }
  /// Returns true if the order of the axes matters.
  [[nodiscard]] constexpr bool has_order() const {
    for (int a = 0; a < dims.count; ++a)
      for (int b = a + 1; b < dims.count; ++b)
        if (dims[a] >= 0 && dims[a] == dims[b]) return true;
    return false;
  }
};

constexpr sharding sharding_of(const input_layout& l) {
  sharding s;
  for (int k = 0; k < l.size(); ++k) {
    const int a = l.from_last ? l.size() - 1 - k : k;
    if (l[a] >= 0) s.add_split(a, l[a]);
  }
  return s;
}

/// Returns the annotation as programs write it, one entry for each dim: {"x", ""}.
inline std::vector<std::string> dims_of(const mesh_info& mesh, const sharding& s, int rank) {
  std::vector<std::string> dims;
  for (int d = 0; d < rank; ++d) {
    text axes;
    write_dim(axes, mesh, s, d);
    dims.emplace_back(axes.view());
  }
  return dims;
}

/// Returns true if each axis makes the shard of a device smaller. Padding is allowed, because the price includes it. An
/// axis that adds only padding is not tried: 33 rows over 8 devices are shards of 5, but 1 row over 8 devices is a
/// shard of 1, as on one device.
constexpr bool each_axis_cuts(const mesh_shape& mesh, const extents& shape, const input_layout& l) {
  for (int d = 0; d < shape.count; ++d) {
    const auto shard = [&](std::int64_t parts) { return (shape[d] + parts - 1) / parts; };
    std::int64_t parts = 1;
    for (int a = 0; a < l.size(); ++a)
      if (l[a] == d) parts *= mesh.sizes[a];
    for (int a = 0; a < l.size(); ++a)
      if (l[a] == d && mesh.sizes[a] > 1 && shard(parts) == shard(parts / mesh.sizes[a])) return false;
  }
  return true;
}

/// Returns the annotations to try instead of `now`. If there are at most `few`, they are all annotations of the input:
/// each axis splits any dim or none. Otherwise they are the annotations that differ from `now` in one axis. An axis
/// with one device splits nothing. Example: [4] on one axis of 2 devices gives {}, {-1}, {0}.
constexpr constant_vector<input_layout> candidates(const mesh_shape& mesh, const extents& shape, const input_layout& now) {
  constexpr std::size_t few = 64;
  const int axes = mesh.axis_count();
  constant_vector<input_layout> found{{}, input_layout(axes, -1)};
  const auto add = [&](input_layout l) {
    l.from_last = false;
    if (std::find(found.begin(), found.end(), l) != found.end() || !each_axis_cuts(mesh, shape, l)) return;
    found.push_back(l);
    l.from_last = l.has_order();
    if (l.from_last) found.push_back(l);
  };
  std::size_t all = 1;
  for (int a = 0; a < axes && all <= few; ++a)
    if (mesh.sizes[a] > 1) all *= static_cast<std::size_t>(shape.count) + 1;
  const input_layout from = now.empty() ? input_layout(axes, -1) : now;
  if (all > few) {
    for (int a = 0; a < axes; ++a)
      for (int d = -1; d < shape.count; ++d) {
        input_layout l = from;
        if (mesh.sizes[a] > 1) l[a] = d;
        add(l);
      }
    return found;
  }
  input_layout l(axes, -1);
  while (true) {
    add(l);
    int a = 0;
    for (; a < axes; ++a) {
      if (mesh.sizes[a] == 1) continue;
      if (++l[a] < shape.count) break;
      l[a] = -1;
    }
    if (a == axes) return found;
  }
}

/// Splits one dim over all axes: `dim`, or if that is -1, the dim with the smallest shards. If several dims have the
/// smallest shards, it is the longest dim. If no dim can be split over all axes, each axis separately splits the dim
/// with the smallest shards. Example: [2,8] on axes of 2 and 2 devices gives {1, 1}.
constexpr input_layout split_over_all(const mesh_shape& mesh, const extents& shape, int dim = -1) {
  const int axes = mesh.axis_count();
  input_layout l(axes, -1);
  const auto take_best = [&](int first, int end) {  // over axes [first, end)
    input_layout best = l;
    std::int64_t least = local_elements(mesh, shape, sharding_of(l)), longest = 0;
    for (int d = 0; d < shape.count; ++d) {
      input_layout other = l;
      for (int a = first; a < end; ++a)
        if (mesh.sizes[a] > 1) other[a] = d;
      const auto elems = local_elements(mesh, shape, sharding_of(other));
      if ((dim >= 0 && d != dim) || !each_axis_cuts(mesh, shape, other)) continue;
      if (elems > least || (elems == least && shape[d] <= longest)) continue;
      best = other;
      least = elems;
      longest = shape[d];
    }
    l = best;
  };
  take_best(0, axes);
  if (l != input_layout(axes, -1)) return l;
  for (int a = 0; a < axes; ++a) take_best(a, a + 1);
  return l;
}

}  // namespace gspmd::detail
