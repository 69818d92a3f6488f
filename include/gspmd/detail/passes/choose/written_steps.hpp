// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"

namespace gspmd::detail {

/// Returns the layout after a written step on the path from `from` to `to`. The axes of the step lose their use in
/// `from` and get their use in `to`. After a gather or a sum they have no use, and a later step may slice along them.
///
///   {x,-} to {-,x}: a gather over x gives {-,-}, an exchange over x gives {-,x}
constexpr sharding layout_after(const written_step& step, const sharding& from, const sharding& to) {
  sharding s = from;
  inline_vec<axis_use, max_axes> kept;
  for (const auto& use : from.splits)
    if ((step.axes & axis_bit(use.axis)) == 0) kept.push_back(use);
  s.splits = kept;
  s.partial = from.partial & ~step.axes;
  s.reduced_by = s.partial == 0 ? monoid::add : from.reduced_by;
  if (step.what == device_action::gather || step.what == device_action::sum) return s;
  for (const auto& use : to.splits)
    if ((step.axes & axis_bit(use.axis)) != 0) s.add_split(use.axis, use.dim);
  s.partial |= to.partial & step.axes;
  s.reduced_by = s.partial == 0 ? monoid::add : (s.partial & from.partial) != 0 ? from.reduced_by : to.reduced_by;
  return s;
}

/// Returns the layout that devices start from when they put their parts among zeros to get the partial values of `to`.
/// Axes that split `from` and are partial in `to` split the innermost parts of their dims. Returns `to` if no axis
/// does, or if uneven parts are not nested.
///
///   {x,-} to {-,-} partial(x): {x,-}, and nothing is sent
///   {xy,-} to {y,-} partial(x): {yx,-}, after a collective_permute
constexpr sharding before_terms(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  sharding parts = to;
  for (const auto& use : from.splits)
    if ((to.partial & axis_bit(use.axis)) != 0) parts.add_split(use.axis, use.dim);
  if (parts.splits == to.splits || !lies_inside(mesh, global, to, parts)) return to;
  parts.partial = to.partial & from.partial;
  parts.reduced_by = parts.partial == 0 ? monoid::add : from.reduced_by;
  return parts;
}

/// Returns the layout along the axes outside `closed`. Equal data along a closed axis counts as varying, so that
/// devices do not divide it.
constexpr sharding along_open(sharding s, axis_mask closed) {
  s.replica = 0;
  s.partial &= ~closed;
  s.varying = closed & ~s.split_axes();
  return s;
}
/// Returns a layout on the path from `from`, with the partial sums of `from` along closed axes.
constexpr sharding with_closed(sharding s, const sharding& from, axis_mask closed) {
  s.varying = 0;
  if (s.partial == 0) s.reduced_by = from.reduced_by;
  s.partial |= from.partial & closed;
  return s;
}

/// Calls `visit(from, step)` for the steps of a reshard that an explicit program writes. They are the steps of the
/// automatic mode, and send only over axes outside `closed`. Axes of a manual region, and axes that the planner splits,
/// are closed.
template <class Visit>
constexpr void for_each_reshard_step(const mesh_shape& mesh, const network_rates& net, const extents& global,
                                     const sharding& from, const sharding& to, axis_mask closed, std::int64_t bytes_per_elem,
                                     Visit visit) {
  closed |= from.partial & to.partial;  // axes that stay partial, possibly by another monoid
  // A program's globals may be called `step` or `at`. GCC looks up the names in this lambda again at its instantiation.
  const auto visit_open = [&](sharding held_before, reshard_step taken_step) {
    visit(with_closed(held_before, from, closed), {taken_step.what, with_closed(taken_step.to, from, closed), taken_step.axes});
  };
  const sharding begin = along_open(from, closed), end = along_open(to, closed), parts = before_terms(mesh, global, begin, end);
  for_each_step(mesh, net, global, begin, parts, bytes_per_elem, visit_open);
  if (!(parts.splits == end.splits)) visit_open(parts, {reshard_step::kind::terms, end, 0});
}

/// Returns the planned step for a step that an explicit program writes: exactly this step, and no cheaper one.
constexpr reshard_step planned_step(const mesh_shape& mesh, const extents& global, const written_step& written,
                                    const sharding& from, const sharding& to) {
  using kind = reshard_step::kind;
  const sharding after = written.is_found ? to : layout_after(written, from, to);
  switch (written.what) {
    case device_action::sum:
    case device_action::gather_sum:
      if (mesh.size_of(written.axes) > 1) return {kind::reduce, after, written.axes};
      break;
    case device_action::gather:
    case device_action::exchange:
      if (const axis_mask axes = movement_axes(mesh, global, from, after); axes != 0) return {kind::move, after, axes};
      break;
    case device_action::keep_first:
    case device_action::pad_zeros: return {kind::terms, after, 0};
    case device_action::keep_own:
    case device_action::nothing:
    case device_action::permute: break;
  }
  return {kind::slice, after, 0};
}

}  // namespace gspmd::detail
