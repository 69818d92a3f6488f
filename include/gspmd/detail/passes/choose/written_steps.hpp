// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/transition.hpp"
#include "gspmd/detail/passes/choose/reshard.hpp"

namespace gspmd::detail {

/// Returns the layout after a written step on the way from one layout to another one: its axes leave what they did, and do what they do in
/// the end. Those that are gathered or summed do nothing: they may be cut again later.
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

/// A step of a program that writes its own communication, as plans know it: that, and nothing cheaper.
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
