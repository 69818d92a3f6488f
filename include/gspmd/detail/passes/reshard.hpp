// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// One step on the way from one sharding to another.
struct reshard_step {
  enum class kind : std::uint8_t { none, slice, reduce, move };
  kind what = kind::none;
  sharding to;
  axis_mask axes = 0;  // over whose groups a reduce or move communicates
};

/// The first step from `from` towards `to` (GSPMD 4.5), each one right for any extents:
///   1. slice     take over the splits of `to` that cut what the device holds: nothing is sent
///   2. reduce    partial axes that split a dim in `to` by reduce_scatter, then the others by one all_reduce
///   3. move      axes that change their dim (all_to_all, collective_permute), then those that vanish (all_gather)
constexpr reshard_step next_step(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  reshard_step step;
  step.to = from;
  if (same_layout(from, to)) return step;

  const axis_mask pending = from.partial & ~to.partial;
  sharding& mid = step.to;
  axis_mask scattered = 0;
  const auto extend = [&](axis_mask allowed) {  // lengthen the splits of `from` towards those of `to`
    axis_mask added = 0;
    int at = 0;
    while (at < to.splits.count) {
      const int dim = to.splits[at].dim;
      int index = 0;
      int seen = 0;
      bool prefix = true;
      for (const auto& use : mid.splits) {
        if (use.dim != dim) continue;
        if (at + index >= to.splits.count || to.splits[at + index].dim != dim || to.splits[at + index].axis != use.axis)
          prefix = false;
        ++index;
        ++seen;
      }
      for (; at < to.splits.count && to.splits[at].dim == dim; ++at) {
        if (seen > 0) {
          --seen;
          continue;
        }
        const int axis = to.splits[at].axis;
        if (!prefix || (allowed & axis_bit(axis)) == 0) {
          prefix = false;
          continue;
        }
        sharding finer = mid;
        finer.add_split(axis, dim);
        if (!lies_inside(mesh, global, from, finer)) {
          prefix = false;
          continue;
        }
        mid = finer;
        added |= axis_bit(axis);
      }
    }
    return added;
  };

  const axis_mask free_axes = ~(from.split_axes() | from.partial);
  if (extend(free_axes) != 0) {
    step.what = reshard_step::kind::slice;
    return step;
  }
  if (pending != 0) {
    scattered = extend(pending);
    step.what = reshard_step::kind::reduce;
    step.axes = scattered != 0 ? scattered : pending;
    mid.partial = from.partial & ~step.axes;
    return step;
  }

  // What vanishes may stay where it is until the end, minor to what the dim gets: often less is moved before it is gathered.
  step.what = reshard_step::kind::move;
  sharding kept = to;
  const axis_mask staying = to.split_axes();
  for (const auto& use : from.splits)
    if ((staying & axis_bit(use.axis)) == 0) kept.add_split(use.axis, use.dim);
  mid = to;
  if (!same_layout(kept, from) && kept.splits.count != to.splits.count) {
    const auto bytes = [&](const sharding& a, const sharding& b) {
      return bytes_sent(mesh, movement{global, a, b, movement_axes(mesh, global, a, b)}, 1);
    };
    if (bytes(from, kept) + bytes(kept, to) < bytes(from, to)) mid = kept;
  }
  mid.partial = from.partial;
  mid.kind = from.kind;
  step.axes = movement_axes(mesh, global, from, mid);
  if (step.axes == 0) step.what = reshard_step::kind::slice;
  return step;
}

/// What one device sends in one step.
constexpr std::int64_t step_bytes(const mesh_shape& mesh, const extents& global, const sharding& from, const reshard_step& step,
                                  std::int64_t bytes_per_elem) {
  if (step.what == reshard_step::kind::reduce)
    return bytes_sent(mesh, reduction{global, from, step.to, step.axes, from.kind}, bytes_per_elem);
  if (step.what == reshard_step::kind::move) return bytes_sent(mesh, movement{global, from, step.to, step.axes}, bytes_per_elem);
  return 0;
}

/// What one device sends on the whole way from `from` to `to`.
constexpr std::int64_t reshard_bytes(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to,
                                     std::int64_t bytes_per_elem) {
  std::int64_t total = 0;
  for (auto step = next_step(mesh, global, from, to); step.what != reshard_step::kind::none;
       step = next_step(mesh, global, from, to)) {
    total += step_bytes(mesh, global, from, step, bytes_per_elem);
    from = step.to;
  }
  return total;
}

}  // namespace gspmd::detail
