// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/annotation.hpp"
#include "gspmd/detail/ir/even_cuts.hpp"

/// Layouts on a mesh with explicit axes, which a program's types state, and automatic axes, which the planner assigns.
/// If both split a dim, the explicit axes are major. The automatic axes must cut the explicit parts evenly, so that no
/// element leaves its device.
///
///     12 elements, data:2 explicit, model:3 automatic     [data] [data,model]: parts of 6, and of 2 inside these
///     12 elements, data:2 explicit, model:4 automatic     [data] only: model would cut parts of 2 whose ends differ
///                                                         from those of 6
namespace gspmd::detail {

/// Returns the part of a layout on these axes.
constexpr sharding part_along(const sharding& all, axis_mask axes) {
  sharding s;
  for (const auto& use : all.splits)
    if ((axes & axis_bit(use.axis)) != 0) s.splits.push_back(use);
  s.partial = all.partial & axes;
  s.replica = all.replica & axes;
  if (s.partial != 0) s.reduced_by = all.reduced_by;
  return s;
}

/// Returns the layout with the axes of `outer` and `inner`. If an inner axis does not cut a dim evenly, it does not
/// split the dim.
constexpr sharding put_behind(const mesh_shape& mesh, const extents& shape, const sharding& outer, const sharding& inner) {
  sharding s;
  for (int d = 0; d < shape.count; ++d) {
    const bool is_even = !outer.is_split(d) || cuts_evenly(mesh, shape[d], outer, inner, d);
    for (const auto* const part : {&outer, &inner})
      for (const auto& use : part->splits)
        if (use.dim == d && (part == &outer || is_even)) s.splits.push_back(use);
  }
  s.partial = outer.partial | inner.partial;
  s.reduced_by = outer.partial != 0 ? outer.reduced_by : inner.reduced_by;
  return s;
}

/// Returns the mistake in an annotation on a mesh with automatic and explicit axes; empty if the annotation is correct.
[[gnu::cold]] constexpr text automatic_mistake(const mesh_info& mesh, const extents& shape, const sharding& s) {
  const axis_mask automatic = mesh.automatic_axes;
  text what;
  if (const axis_mask named = (s.partial | s.replica) & automatic; named != 0)
    return what << "names `" << axes_text(mesh, named)
                << "`, which is automatic: where a value is a sum along it is for the planner to find; name it in a split only";
  for (int k = 1; k < s.splits.count; ++k) {
    const auto &outer = s.splits[k - 1], &inner = s.splits[k];
    if (outer.dim != inner.dim || (automatic & axis_bit(outer.axis)) == 0 || (automatic & axis_bit(inner.axis)) != 0) continue;
    return what << "dim " << int{inner.dim} << " is split by `" << axes_text(mesh, axis_bit(outer.axis))
                << "`, which is automatic, before `" << axes_text(mesh, axis_bit(inner.axis))
                << "`, which is explicit; write the explicit axes of a dim first";
  }
  const sharding by_types = part_along(s, ~automatic), rest = part_along(s, automatic);
  if (const int d = unevenly_cut(mesh.shape, shape, by_types, rest); d >= 0) return uneven_text(mesh, shape, by_types, rest, d);
  return what;
}

}  // namespace gspmd::detail
