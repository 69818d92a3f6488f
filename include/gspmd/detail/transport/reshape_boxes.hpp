// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/reshape_map.hpp"
#include "gspmd/detail/transport/box.hpp"

/// The boxes of a movement that reshapes. Both sides count in the digits of the row-major number (reshape_map.hpp).
/// Each turn copies between one box of each shard.
namespace gspmd::detail {

inline reshape_digits digits_of(const mesh_shape& mesh, const movement& m) {
  return digits_of(mesh, m.from_global, m.from, m.to_global, m.to);
}
inline std::int64_t reshape_turns(const mesh_shape& mesh, const movement& m) {
  const auto digits = digits_of(mesh, m);
  return digits.exist ? pieces_of(digits.from) * pieces_of(digits.to) : 1;
}

/// Returns box `piece` of a shard as the layout of a buffer. The steps of its dims are the strides of the digits.
inline buffer_layout reshape_layout(const mesh_shape& mesh, const reshape_digits& digits, const digit_ranges& ranges,
                                    const extents& global, const sharding& s, const coordinates& at, std::int64_t piece) {
  auto box = digits.whole();
  if (!digits.exist || is_beside_unit_dims(global, s, at)) box.rank = 1, box.begin[0] = box.end[0] = 0;
  else cut_to_shard(mesh, digits, ranges, global, s, at, piece, box);
  const auto local = local_extents(mesh, global, s);
  const auto strides = strides_in_shard(digits, ranges, global, local);
  buffer_layout layout;
  layout.held.rank = box.rank;
  for (int d = 0; d < box.rank; ++d) {
    layout.held.begin[d] = box.begin[d];
    layout.held.end[d] = box.end[d];
    layout.local[d] = 1;
    layout.first[d] = 0;
    layout.step[d] = d < strides.count ? strides[d] : 1;
  }
  std::int64_t stride = 1;
  for (int d = global.count; d-- > 0; stride *= local[d])
    if (box.rank > 0) layout.first[0] -= stride * dim_range(mesh, global, s, d, at).begin;
  return layout;
}

inline buffer_layout reshape_target(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t turn) {
  const auto digits = digits_of(mesh, m);
  return reshape_layout(mesh, digits, digits.to, m.to_global, m.to, at, turn / pieces_of(digits.from));
}
inline buffer_layout reshape_source(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t turn) {
  const auto digits = digits_of(mesh, m);
  return reshape_layout(mesh, digits, digits.from, m.from_global, m.from, at, turn % pieces_of(digits.from));
}

/// Moves `at` to the device that holds a part of a dim.
inline void move_to_holder(const mesh_shape& mesh, const sharding& s, int dim, std::int64_t part, coordinates& at) {
  for (int i = s.splits.count - 1; i >= 0; --i) {
    if (s.splits[i].dim != dim) continue;
    const int axis = s.splits[i].axis;
    at[axis] = static_cast<std::int32_t>(part % mesh.sizes[axis]);
    part /= mesh.sizes[axis];
  }
}

/// Calls `visit(coordinates)` for the members that may hold elements of `target`. `holder` has the coordinates of
/// this device.
template <class Visit>
inline void for_each_reshape_holder(const mesh_shape& mesh, const movement& m, const buffer_layout& target, coordinates holder,
                                    Visit visit) {
  const auto digits = digits_of(mesh, m);
  if (!digits.exist || !target.held.any()) return;
  digit_box box;
  box.rank = target.held.rank;
  for (int d = 0; d < box.rank; ++d) {
    box.begin[d] = target.held.begin[d];
    box.end[d] = target.held.end[d];
  }
  index_range parts[max_axes];
  std::int64_t at[max_axes];
  for (const auto& use : m.from.splits)
    if (m.from_global[use.dim] == 1) holder[use.axis] = 0;
  for (int k = 0; k < digits.from.count; ++k) {
    parts[k] = parts_around(digits, digits.from[k], m.from_global, box);
    at[k] = parts[k].begin;
    move_to_holder(mesh, m.from, digits.from[k].dim, at[k], holder);
  }
  for (;;) {
    visit(static_cast<const coordinates&>(holder));
    int k = 0;
    for (; k < digits.from.count; ++k) {
      const bool goes_on = ++at[k] < parts[k].end;
      if (!goes_on) at[k] = parts[k].begin;
      move_to_holder(mesh, m.from, digits.from[k].dim, at[k], holder);
      if (goes_on) break;
    }
    if (k == digits.from.count) return;
  }
}

}  // namespace gspmd::detail
