// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/mode_mistake.hpp"
#include "gspmd/detail/ops/modes/local_view.hpp"
#include "gspmd/detail/passes/typed/value_type.hpp"

namespace gspmd::detail {

/// The type of a value after it crosses the border of a manual region, or the reason why it may not cross.
struct border_crossing {
  value_type is;
  mode_mistake broken = mode_mistake::none;
  int axis = -1;
  text what;
};

/// Returns true if the other axes evenly cut each dim that the region's axes cut. The region's axes are major.
/// Otherwise records the mistake in `to`.
constexpr bool is_cut_evenly(const mesh_info& mesh, const extents& global, const sharding& written, const sharding& others,
                             border_crossing& to) {
  const int dim = unevenly_cut(mesh.shape, global, written, others);
  if (dim < 0) return true;
  to.broken = mode_mistake::nested_order;
  for (const auto& use : others.splits)
    if (use.dim == dim && to.axis < 0) to.axis = use.axis;
  to.what = uneven_text(mesh, global, written, others, dim);
  return false;
}

/// Types a value that enters the local view: it has the states that the region specifies. Its splits over other axes
/// stay.
constexpr border_crossing enter(const mesh_info& mesh, const node& n, const value_type& from) {
  const axis_mask axes = region_border::of(n).axes;
  const value_type written = value_type::of(n.annotation.layout);
  border_crossing to{from, mode_mistake::none, -1, {}};
  for (int a = 0; a < mesh.shape.axis_count(); ++a) {
    if ((axes & axis_bit(a)) == 0) continue;
    axis_state is = written.on(a);
    if (is.is == state::shard) is = {state::varying};
    to.is.set(a, is_floating(n.type) ? is : without_gradient(is));
  }
  const auto& splits = from.layout.splits;
  for (int k = 1; k < splits.count; ++k) {  // the axes of the region cut first: the other axes cut their parts
    const auto& inner = splits[k];
    int of = k - 1;  // the previous axis with several devices
    while (of > 0 && mesh.shape.sizes[splits[of].axis] == 1) --of;
    const auto& outer = splits[of];
    if (outer.dim != inner.dim || (axes & axis_bit(outer.axis)) != 0 || (axes & axis_bit(inner.axis)) == 0) continue;
    if (mesh.shape.sizes[outer.axis] == 1) continue;
    to.broken = mode_mistake::nested_order;
    to.axis = inner.axis;
    to.what = text("dim ") << int{inner.dim} << " is split by `" << axes_text(mesh, axis_bit(outer.axis)) << "` before `"
                           << axes_text(mesh, axis_bit(inner.axis)) << "`, which is local: local axes come first";
    return to;
  }
  for (const auto& use : written.layout.splits) to.is.parts.cut(use.axis, use.dim);
  extents global = n.shape;
  for (int d = 0; d < global.count; ++d) global[d] *= parts_of(mesh.shape, written.layout, d);
  is_cut_evenly(mesh, global, written.layout, to.is.layout, to);
  return to;
}

/// Returns true if each dim leaves the region cut by the axes that cut it inside, in their order.
constexpr bool leaves_in_order(const mesh_info& mesh, const node& n, const local_parts& parts, border_crossing& to) {
  extents shard = n.shape;  // on a device: the node has the global shape
  for (int d = 0; d < shard.count; ++d) shard[d] = shard_extent(shard[d], parts_of(mesh.shape, n.annotation.layout, d));
  for (int d = 0; d < n.shape.count && !n.in_gradient; ++d) {
    const int last = end_of_dims(shard, d);
    inline_vec<std::int8_t, max_axes> order;
    for (const auto& use : n.annotation.layout.splits)
      if (use.dim >= d && use.dim <= last) order.push_back(use.axis);
    if (parts.ends_with(d, order)) continue;
    to.broken = mode_mistake::axis_order;
    to.axis = order[0];
    to.what = text("dim ") << d << " of the result is cut by " << order_text(mesh, parts.order_of(d)) << " and leaves as cut by "
                           << order_text(mesh, order)
                           << ", so its parts would have another order; name the axes in the order of the result";
    return false;
  }
  return true;
}

/// Types a value that returns to the global view: it must have the states that the region specifies. A varying value
/// becomes a part of the dim that is named.
///
///   [4] on each device, varying over x:2, leaves as split<`x`>: [8], sharded (dim 0)
constexpr border_crossing leave(const mesh_info& mesh, const node& n, const value_type& from) {
  const axis_mask axes = region_border::of(n).axes;
  const value_type written = value_type::of(n.annotation.layout);
  border_crossing to{from, mode_mistake::none, -1, {}};
  for (int a = mesh.shape.axis_count() - 1; a >= 0; --a) {
    if ((axes & axis_bit(a)) == 0) continue;
    const axis_state wanted = written.on(a), is = from.on(a);
    const bool varies = is.is == state::varying || is.is == state::shard;
    const bool is_equal = is.is == state::constant || (!is_floating(n.type) && without_gradient(is).is == state::constant);
    bool is_right = is == wanted || (is_equal && wanted.is != state::partial) || (varies && wanted.is == state::shard);
    // In a gradient, each device has its partial value of data that is equal on all devices.
    is_right = is_right || (n.in_gradient && wanted == partial_by(monoid::add) && (varies || is.is == state::constant));
    is_right = is_right || (n.in_gradient && wanted.is == state::shard && is.is == state::replica);
    if (!is_right) {
      to.broken = mode_mistake::out_spec_mismatch;
      to.axis = a;
      const text axis = axes_text(mesh, axis_bit(a));
      to.what << "the result is " << long_text(is) << " over `" << axis << "` and leaves as ";
      if (wanted.is == state::shard) to.what << "part of dim " << int{wanted.dim};
      else to.what << long_text(wanted);
      if (varies) to.what << "; name the dim that `" << axis << "` splits, or reduce or gather it";
      else if (is.is == state::partial)
        to.what << "; all_reduce or reduce_scatter it, or let it leave as partial<\"" << axis << "\">";
      else if (wanted.is == state::shard)
        to.what << ", so it has that many copies; name no dim for `" << axis << "`, or take each device's part first";
      else to.what << "; let it leave as " << (is.is == state::replica ? "replica" : "invariant") << "<\"" << axis << "\">";
      return to;
    }
    to.is.set(a, wanted);
  }
  if (!leaves_in_order(mesh, n, from.parts, to)) return to;
  to.is.parts.keep_axes(~axes);
  const sharding others = part_along(to.is.layout, ~axes);
  if (!is_cut_evenly(mesh, n.shape, written.layout, others, to)) return to;
  to.is.layout.splits = written.layout.splits;
  for (const auto& use : others.splits) to.is.layout.add_split(use.axis, use.dim);  // minor to the region's axes
  return to;
}

}  // namespace gspmd::detail
