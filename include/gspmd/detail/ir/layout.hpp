// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// The placement of the elements of a value on a mesh, in numbers without names. The planner, the executors and the
/// communicators use these functions, so they all compute the same part for a device.
namespace gspmd::detail {

using axis_mask = std::uint32_t;  // a set of mesh axes, by position
using dim_mask = std::uint64_t;   // a set of tensor dims, by position

constexpr axis_mask axis_bit(int axis) { return axis_mask{1} << axis; }
constexpr dim_mask dim_bit(int dim) { return dim_mask{1} << dim; }

using coordinates = inline_vec<std::int32_t, max_axes>;  // the position of a device on each mesh axis

/// The sizes of the axes, major to minor, and the order of the devices (GSPMD 3.1).
struct mesh_shape {
  inline_vec<std::int32_t, max_axes> sizes;
  const std::int32_t* order = nullptr;     // device id at each position, row-major over the axes; null: the identity
  const std::int32_t* position = nullptr;  // the inverse of `order`

  [[nodiscard]] constexpr int axis_count() const { return sizes.count; }
  [[nodiscard]] constexpr std::int64_t device_count() const {
    std::int64_t n = 1;
    for (int a = 0; a < sizes.count; ++a) n *= sizes[a];
    return n;
  }
  /// Returns the axes of size above 1. Axes of size 1 split no dim and connect no devices.
  [[nodiscard]] constexpr axis_mask wide_axes() const {
    axis_mask axes = 0;
    for (int a = 0; a < sizes.count; ++a)
      if (sizes.items[a] > 1) axes |= axis_bit(a);
    return axes;
  }
  [[nodiscard]] constexpr std::int64_t size_of(axis_mask axes) const {
    std::int64_t n = 1;
    for (int a = 0; axes != 0 && a < sizes.count; ++a, axes >>= 1) n *= (axes & 1U) != 0 ? sizes.items[a] : 1;
    return n;
  }
  [[nodiscard]] constexpr coordinates coordinates_of(std::int64_t device) const {
    std::int64_t at = position != nullptr ? position[device] : device;
    coordinates result(sizes.count, 0);
    for (int a = sizes.count - 1; a >= 0; --a) {
      result[a] = static_cast<std::int32_t>(at % sizes[a]);
      at /= sizes[a];
    }
    return result;
  }
  [[nodiscard]] constexpr std::int32_t device_at(const coordinates& at) const {
    std::int64_t p = 0;
    for (int a = 0; a < sizes.count; ++a) p = p * sizes[a] + at[a];
    return order != nullptr ? order[p] : static_cast<std::int32_t>(p);
  }
};

/// Returns device `member` of the group of devices that have the coordinates `at` on all axes outside `axes`. Members
/// are numbered row-major over the axes of the group (GSPMD 4.2).
constexpr coordinates group_member(const mesh_shape& mesh, axis_mask axes, coordinates at, std::int64_t member) {
  for (int a = mesh.axis_count() - 1; a >= 0; --a)
    if ((axes & axis_bit(a)) != 0) {
      at[a] = static_cast<std::int32_t>(member % mesh.sizes[a]);
      member /= mesh.sizes[a];
    }
  return at;
}

/// Returns the number of the device at `at` in its group over `axes`.
constexpr std::int64_t group_index(const mesh_shape& mesh, axis_mask axes, const coordinates& at) {
  std::int64_t index = 0;
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((axes & axis_bit(a)) != 0) index = index * mesh.sizes[a] + at[a];
  return index;
}

/// One mesh axis that splits one tensor dim. It has no initialisers, so compilers create the elements of a list in one
/// operation; constant evaluations create millions.
struct axis_use {
  std::int8_t axis;
  std::int8_t dim;
  friend constexpr bool operator==(const axis_use&, const axis_use&) = default;
};

/// The sharding of a value (GSPMD 3.1). The devices along an axis hold parts of a dim, partial values, unrelated data,
/// or equal data. Plans use only parts, partial values and equal data. Programs that state further states
/// (axis_state.hpp) set `varying` and `replica`. Code that requires equal data must use equal_axes.
struct sharding {
  inline_vec<axis_use, max_axes> splits;  // ordered by dim, then major to minor
  axis_mask partial = 0;                  // the value is the reduction over the devices along these axes
  monoid reduced_by = monoid::add;        // of the partial axes
  axis_mask varying = 0;                  // each device has its own value
  axis_mask replica = 0;                  // equal data; each device has a partial value of the gradient

  friend constexpr bool operator==(const sharding& a, const sharding& b) {
    return a.partial == b.partial && a.varying == b.varying && a.replica == b.replica && a.splits == b.splits &&
           (a.partial == 0 || a.reduced_by == b.reduced_by);
  }
  /// Returns the members that plans use.
  [[nodiscard]] constexpr sharding planned() const { return {splits, partial, reduced_by}; }

  [[nodiscard]] constexpr axis_mask split_axes() const {
    axis_mask axes = 0;
    for (int i = 0; i < splits.count; ++i) axes |= axis_mask{1} << splits.items[i].axis;
    return axes;
  }
  [[nodiscard]] constexpr axis_mask axes_of(int dim) const {
    axis_mask axes = 0;
    for (const auto& use : splits)
      if (use.dim == dim) axes |= axis_bit(use.axis);
    return axes;
  }
  [[nodiscard]] constexpr bool is_split(int dim) const {
    for (const auto& use : splits)
      if (use.dim == dim) return true;
    return false;
  }
  /// Returns the axes along which all devices hold equal data.
  [[nodiscard]] constexpr axis_mask equal_axes(const mesh_shape& mesh) const {
    return mesh.wide_axes() & ~(split_axes() | partial | varying);
  }
  /// Splits `dim` by one more axis, minor to its existing axes.
  constexpr void add_split(int axis, int dim) {
    int at = 0;
    while (at < splits.count && splits[at].dim <= dim) ++at;
    splits.insert(at, axis_use{static_cast<std::int8_t>(axis), static_cast<std::int8_t>(dim)});
  }
};

// The next functions and those of collective.hpp compute the cost of every sharding that the planner considers. They
// access splits by pointers, because each call and each list counts against the limits of a constant evaluation
// (inline_vec.hpp).

/// A range of the splits of a sharding.
struct use_range {
  const axis_use* begin = nullptr;
  const axis_use* end = nullptr;

  /// Returns true if both ranges contain the same axes in the same order, ignoring axes of size 1.
  [[nodiscard]] constexpr bool names_same_axes(const mesh_shape& mesh, const use_range& other) const {
    const axis_use* a = begin;
    const axis_use* b = other.begin;
    for (;;) {
      while (a != end && mesh.sizes.items[a->axis] == 1) ++a;
      while (b != other.end && mesh.sizes.items[b->axis] == 1) ++b;
      if (a == end || b == other.end || a->axis != b->axis) return a == end && b == other.end;
      ++a;
      ++b;
    }
  }
};

/// Returns the axes that separate the parts of `dim` that hold data, major to minor. An axis of size 1 separates no
/// parts. A major axis separates no parts if only parts at its coordinate 0 hold data.
///   8 over [x,y], 2x2: x,y     2 over [x,y], 2x2: y     1 over [x,y] or [y,x]: none, the device at (0,0) holds it
constexpr use_range separating_axes(const mesh_shape& mesh, const sharding& s, int dim, std::int64_t global_extent) {
  const axis_use* const last = s.splits.items + s.splits.count;
  use_range range{s.splits.items, nullptr};
  while (range.begin != last && range.begin->dim != dim) ++range.begin;
  std::int64_t parts = 1;
  for (range.end = range.begin; range.end != last && range.end->dim == dim; ++range.end)
    parts *= mesh.sizes.items[range.end->axis];
  const auto step = (global_extent + parts - 1) / parts;
  const auto with_data = step == 0 ? 0 : (global_extent + step - 1) / step;
  while (range.begin != range.end && (parts /= mesh.sizes.items[range.begin->axis]) >= with_data) ++range.begin;
  return range;
}

/// Returns true if every device holds the same elements under both shardings (GSPMD 3.1). This requires the same set of
/// axes, and separating axes in the same order. Devices at a coordinate other than 0 on another axis hold no elements.
///   [1,1] over {x,-} and {-,x}: the device at 0 holds it
constexpr bool same_tiles(const mesh_shape& mesh, const extents& global, const sharding& a, const sharding& b) {
  const axis_use* u = a.splits.items;
  const axis_use* v = b.splits.items;
  const axis_use* const u_end = u + a.splits.count;
  const axis_use* const v_end = v + b.splits.count;
  for (bool is_first = true;; is_first = false) {
    while (u != u_end && v != v_end && u->axis == v->axis && u->dim == v->dim) {
      ++u;
      ++v;
    }
    if (u == u_end && v == v_end) return true;
    if (is_first && mesh.size_of(a.split_axes() ^ b.split_axes()) > 1) return elements(global) == 0;
    const int dim = v == v_end || (u != u_end && u->dim < v->dim) ? u->dim : v->dim;
    const auto axes_a = separating_axes(mesh, a, dim, global.items[dim]);
    const auto axes_b = separating_axes(mesh, b, dim, global.items[dim]);
    if (!axes_a.names_same_axes(mesh, axes_b)) return elements(global) == 0;
    while (u != u_end && u->dim == dim) ++u;
    while (v != v_end && v->dim == dim) ++v;
  }
}

/// Returns true if every device holds the same elements of the same values under both, so no data is moved or copied.
constexpr bool same_data(const mesh_shape& mesh, const extents& global, const sharding& a, const sharding& b) {
  if (mesh.size_of(a.partial ^ b.partial) > 1 || ((a.partial & b.partial) != 0 && a.reduced_by != b.reduced_by)) return false;
  return same_tiles(mesh, global, a, b);
}

/// Returns the number of parts of a dim: the product of the sizes of its axes.
constexpr std::int64_t parts_of(const mesh_shape& mesh, const sharding& s, int dim) {
  std::int64_t n = 1;
  for (const auto& use : s.splits)
    if (use.dim == dim) n *= mesh.sizes[use.axis];
  return n;
}

/// Returns the part of `dim` that the device at `at` holds.
constexpr std::int64_t part_index(const mesh_shape& mesh, const sharding& s, int dim, const coordinates& at) {
  std::int64_t index = 0;
  for (const auto& use : s.splits)
    if (use.dim == dim) index = index * mesh.sizes[use.axis] + at[use.axis];
  return index;
}

/// Returns the extent of a shard, which is equal for all shards and rounded up (GSPMD 4.1). 15 over 2 is 8. 9 over 2x2
/// is 3 (3,3,3,0).
constexpr std::int64_t shard_extent(std::int64_t global_extent, std::int64_t parts) {
  return parts <= 1 ? global_extent : (global_extent + parts - 1) / parts;
}

constexpr extents local_extents(const mesh_shape& mesh, const extents& global, const sharding& s) {
  extents local = global;
  for (int i = 0; i < s.splits.count;) {
    const int dim = s.splits.items[i].dim;
    std::int64_t parts = 1;
    for (; i < s.splits.count && s.splits.items[i].dim == dim; ++i) parts *= mesh.sizes.items[s.splits.items[i].axis];
    local.items[dim] = (global.items[dim] + parts - 1) / parts;
  }
  return local;
}
/// Returns the number of elements of a shard.
constexpr std::int64_t local_elements(const mesh_shape& mesh, const extents& global, const sharding& s) {
  const axis_use* use = s.splits.items;
  const axis_use* const end = use + s.splits.count;
  std::int64_t n = 1;
  for (int dim = 0; dim < global.count; ++dim) {
    std::int64_t parts = 1;
    while (use != end && use->dim == dim) parts *= mesh.sizes.items[(use++)->axis];
    n *= (global.items[dim] + parts - 1) / parts;
  }
  return n;
}

/// Returns the dims with padding on at least one device.
constexpr dim_mask padded_dims(const mesh_shape& mesh, const extents& global, const sharding& s) {
  dim_mask dims = 0;
  for (int i = 0; i < s.splits.count;) {
    const int dim = s.splits.items[i].dim;
    std::int64_t parts = 1;
    for (; i < s.splits.count && s.splits.items[i].dim == dim; ++i) parts *= mesh.sizes.items[s.splits.items[i].axis];
    if (global.items[dim] % parts != 0) dims |= dim_bit(dim);
  }
  return dims;
}

/// A half-open range of global indices that exist. The rest of a shard up to its extent is padding.
struct index_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const index_range&, const index_range&) = default;
};

constexpr index_range part_range(std::int64_t global_extent, std::int64_t parts, std::int64_t index) {
  const auto step = shard_extent(global_extent, parts);
  const auto begin = index * step < global_extent ? index * step : global_extent;
  return {begin, begin + step < global_extent ? begin + step : global_extent};
}

constexpr index_range dim_range(const mesh_shape& mesh, const extents& global, const sharding& s, int dim,
                                const coordinates& at) {
  return part_range(global[dim], parts_of(mesh, s, dim), part_index(mesh, s, dim, at));
}

constexpr index_range intersect(index_range a, index_range b) {
  const auto begin = a.begin > b.begin ? a.begin : b.begin;
  const auto end = a.end < b.end ? a.end : b.end;
  return {begin, end < begin ? begin : end};
}

}  // namespace gspmd::detail
