// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"

/// The way from one sharding to another that sends the fewest bytes (GSPMD 4.5), among ties in the fewest messages.
///
/// Without a reduction there is nothing to search. A movement brings every device exactly the elements it lacks, and over
/// whatever detour a device gets at least these: one movement is a cheapest path, and nothing larger than source and target
/// is ever held. Slices before it cost nothing and take care that nobody serves more peers than it has to.
///
/// A reduction is cheaper the smaller the shards it leaves, so axes over which the value is replicated may share the work:
///   partial over x, replicated over y, wanted everywhere   reduce_scatter over x into shards over x and y, then all_gather
/// and what follows is one movement again. Ways of this form are compared by the closed forms of collective.hpp, which are
/// exact for even shards and upper bounds otherwise; tests/unit/reshard.cpp compares the choice with an exhaustive search.
/// Of shards with padding this is a way that reduction_search.hpp may beat.
namespace gspmd::detail {

/// One step on the way from one sharding to another.
struct reshard_step {
  enum class kind : std::uint8_t { none, slice, reduce, move };
  kind what = kind::none;
  sharding to;
  axis_mask axes = 0;  // over whose groups a reduce or move communicates
};

/// `from` with the splits of its dims continued by the axes of `allowed` with which those of `to` go on, as far as every
/// device finds its shard in the one it holds, and what it needs under `to` of the latter stays in the shard.
///   {x,-} towards {xy,z}: {xy,z}    {x,-} towards {yx,z}: {x,z}
///   {-} of 9 towards {xy}, 2x2: {xy}, but {-} if y is not allowed: 5,4 does not continue to 3,3,3,0
constexpr sharding continued(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                             axis_mask allowed) {
  sharding result = from;
  for (int at = 0; at < to.splits.count;) {
    const int dim = to.splits[at].dim;
    bool is_prefix = true;
    for (const auto& use : from.splits) {  // those of `to` must begin with them
      if (use.dim != dim) continue;
      is_prefix = is_prefix && at < to.splits.count && to.splits[at] == use;
      if (is_prefix) ++at;
    }
    sharding finer = result;
    for (; at < to.splits.count && to.splits[at].dim == dim; ++at) {
      const int axis = to.splits[at].axis;
      is_prefix = is_prefix && (allowed & axis_bit(axis)) != 0;
      if (!is_prefix) continue;
      finer.add_split(axis, dim);
      if (nests(split_change_of(mesh, from, finer, dim), global[dim]) &&
          nests(split_change_of(mesh, finer, to, dim), global[dim]))
        result = finer;
    }
  }
  return result;
}

/// The sum of what the steps of a path send, in elements, and the number of messages.
struct path_cost {
  std::int64_t elems = 0;
  int messages = 0;

  constexpr void add(std::int64_t sent) {
    elems += sent;
    messages += sent > 0 ? 1 : 0;
  }
  [[nodiscard]] constexpr bool is_less_than(const path_cost& other) const {
    return elems != other.elems ? elems < other.elems : messages < other.messages;
  }
};

constexpr std::int64_t cost_as_written(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  const auto axes = movement_axes(mesh, global, from, to);
  return axes == 0 ? 0 : bytes_sent(mesh, movement{global, from, to, axes}, 1);
}

/// True when a dim is cut into more parts than it has elements.
constexpr bool has_empty_parts(const mesh_shape& mesh, const extents& global, const sharding& s) {
  const axis_use* use = s.splits.items;
  const axis_use* const end = use + s.splits.count;
  while (use != end) {
    const int dim = use->dim;
    std::int64_t parts = 1;
    for (; use != end && use->dim == dim; ++use) parts *= mesh.sizes.items[use->axis];
    if (parts > global.items[dim]) return elements(global) > 0;
  }
  return false;
}

/// `from` under the name, of those for the same tiles, from which a movement to `to` sends least: an axis that tells no parts with
/// data apart may stand anywhere.
///   [1,1] {x,-} to {-,y}: {-,x}, and the element stays on the first device; from {x,-}, all parts of dim 0 would be gathered
constexpr sharding renamed(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  sharding best = from;
  if (!has_empty_parts(mesh, global, from)) return best;
  auto least = cost_as_written(mesh, global, from, to);
  for (bool improved = true; improved && least > 0;) {
    improved = false;
    const sharding start = best;
    for (int i = 0; i < start.splits.count; ++i) {
      const axis_use* const moved = start.splits.items + i;
      const auto telling = telling_axes(mesh, start, moved->dim, global[moved->dim]);
      if (telling.begin <= moved && moved < telling.end && mesh.sizes[moved->axis] > 1) continue;  // elsewhere, it tells others
      sharding others = start;
      others.splits.clear();
      for (int k = 0; k < start.splits.count; ++k)
        if (k != i) others.splits.push_back(start.splits[k]);
      for (int d = 0; d < global.count; ++d)
        for (int where = 0; where <= others.splits.count; ++where) {
          if (where > 0 && others.splits[where - 1].dim > d) break;
          if (where < others.splits.count && others.splits[where].dim < d) continue;
          sharding other = others;
          other.splits.insert(where, axis_use{start.splits[i].axis, static_cast<std::int8_t>(d)});
          if (!same_tiles(mesh, global, start, other)) continue;
          const auto cost = cost_as_written(mesh, global, other, to);
          if (cost >= least) continue;
          least = cost;
          best = other;
          improved = true;
        }
    }
  }
  return best;
}

constexpr std::int64_t cost_of_move(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  const auto cost = cost_as_written(mesh, global, from, to);
  if (cost == 0 || !has_empty_parts(mesh, global, from)) return cost;
  return cost_as_written(mesh, global, renamed(mesh, global, from, to), to);
}

/// Splits `s` further by `axes`: into the smallest shards, and on dims that end up finer under `s` than under `to` if there are
/// any, because these are gathered later and nothing else moves on them. `small_first` says which of the two counts for more.
/// Axes that make no smaller shard inside that of `from` are left out.
constexpr void spread(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to, axis_mask axes,
                      bool small_first, sharding& s) {
  for (int axis = 0; axis < mesh.axis_count(); ++axis) {
    if ((axes & axis_bit(axis)) == 0) continue;
    const auto elems = local_elements(mesh, global, s);
    sharding best;
    std::int64_t least = elems;
    bool best_fits = false;
    for (int dim = 0; dim < global.count; ++dim) {
      sharding finer = s;
      finer.add_split(axis, dim);
      const auto left = local_elements(mesh, global, finer);
      const bool fits = split_change_of(mesh, s, to, dim).to_axes == 0;
      if (left >= elems || !lies_inside(mesh, global, from, finer)) continue;
      const bool is_first = least == elems;
      const bool is_better = small_first ? left < least || (left == least && fits && !best_fits)
                                         : fits > best_fits || (fits == best_fits && left < least);
      if (!is_first && !is_better) continue;
      best = finer;
      least = left;
      best_fits = fits;
    }
    if (least < elems) s = best;
  }
}

/// The first step from `from`, partial over `pending`, to `to`, which is not.
constexpr reshard_step first_reduction(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                                       axis_mask pending) {
  using kind = reshard_step::kind;
  axis_mask idle = 0;  // over these, devices hold the same
  for (int axis = 0; axis < mesh.axis_count(); ++axis)
    if (mesh.sizes[axis] > 1) idle |= axis_bit(axis);
  idle &= ~(from.split_axes() | from.partial);
  const auto whole = [pending](sharding s) {
    s.partial &= ~pending;
    return s;
  };
  const auto sent = [&](const sharding& a, const sharding& b, axis_mask axes) {
    return bytes_sent(mesh, reduction{global, a, b, axes, from.kind}, 1);
  };

  // The plain way: into the splits of `to` by reduce_scatter, what remains by all_reduce.
  const sharding ahead = continued(mesh, global, from, to, idle | pending);
  const axis_mask added = ahead.split_axes() & ~from.split_axes();
  const axis_mask scattered = added & pending;
  const axis_mask left = pending & ~scattered;
  reshard_step best{kind::reduce, ahead, scattered != 0 ? scattered : pending};
  if (scattered == 0 && added != 0) best = {kind::slice, ahead, 0};
  else best.to.partial &= ~best.axes;

  const bool arrives = ahead.splits == to.splits;
  const bool is_even = local_elements(mesh, global, ahead) * mesh.size_of(added) == local_elements(mesh, global, from);
  const axis_mask helpers = arrives && mesh.size_of(pending) == 2 ? 0 : idle & ~added;
  if (helpers == 0 && arrives && (scattered == 0 || (left == 0 && is_even))) return best;

  path_cost least;
  if (scattered != 0) least.add(sent(from, ahead, scattered));
  if (left != 0) least.add(sent(ahead, whole(ahead), left));
  least.add(cost_of_move(mesh, global, ahead, to));
  const auto consider = [&](const path_cost& cost, const reshard_step& step) {
    if (!cost.is_less_than(least)) return;
    least = cost;
    best = step;
  };
  // As much as possible by one reduce_scatter into `fine`, the rest by all_reduce; then one movement.
  const auto consider_scattered = [&](sharding& fine, axis_mask first) {
    if (first == 0) return;
    fine.partial &= ~first;
    path_cost cost;
    cost.add(sent(from, fine, first));
    if (first != pending) cost.add(sent(fine, whole(fine), pending & ~first));
    cost.add(cost_of_move(mesh, global, fine, to));
    consider(cost, {kind::reduce, fine, first});
  };
  bool all_even = is_even;
  const auto scatter = [&](const sharding& start, axis_mask axes, bool small_first) {
    sharding fine = start;
    spread(mesh, global, from, to, axes, small_first, fine);
    const axis_mask cut = fine.split_axes() & ~from.split_axes();
    all_even = all_even && (axes & ~cut) == 0 &&
               local_elements(mesh, global, fine) * mesh.size_of(cut) == local_elements(mesh, global, from);
    consider_scattered(fine, cut & pending);
  };
  if ((left | helpers) != 0) scatter(ahead, left | helpers, false);
  if (all_even) return best;
  // Shards with padding: other dims, or no scattering at all, may send less.
  if (added != 0 && (pending & (pending - 1)) != 0) scatter(from, pending | idle, true);
  const auto wanted = local_elements(mesh, global, to);  // all of them into one dim:
  for (int dim = 0; dim < global.count; ++dim) {
    sharding fine = from;
    for (int axis = 0; axis < mesh.axis_count(); ++axis)
      if ((pending & axis_bit(axis)) != 0 && mesh.sizes[axis] > 1) fine.add_split(axis, dim);
    const auto elems = local_elements(mesh, global, fine);
    const auto moved = wanted > elems ? wanted - elems : 0;  // at least
    if ((mesh.size_of(pending) - 1) * elems + moved >= least.elems || !lies_inside(mesh, global, from, fine)) continue;
    consider_scattered(fine, fine.split_axes() & pending);
  }
  sharding sliced = continued(mesh, global, from, to, idle);
  for (const bool help : {false, true}) {
    if (help && helpers == 0) continue;
    if (help) spread(mesh, global, from, to, idle & ~sliced.split_axes(), true, sliced);
    path_cost cost;
    cost.add(sent(sliced, whole(sliced), pending));
    cost.add(cost_of_move(mesh, global, sliced, to));
    if (sliced.splits == from.splits) consider(cost, {kind::reduce, whole(sliced), pending});
    else consider(cost, {kind::slice, sliced, 0});
  }
  return best;
}

/// The axes of `to` that split nothing under `from` and cut a dim whose parts trade places. Devices that differ in them hold
/// the same; unless each cuts its own share first, one of them sends what all of them need.
constexpr sharding shared_out(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  sharding result = from;
  const axis_mask used = from.split_axes() | from.partial;
  for (const auto& use : to.splits) {
    if ((used & axis_bit(use.axis)) != 0 || mesh.sizes[use.axis] == 1) continue;
    if (!split_change_of(mesh, from, to, use.dim).is_reordered()) continue;
    sharding finer = result;
    finer.add_split(use.axis, use.dim);
    // Even parts only: with rounding, fewer devices hold anything, and less of it is in its place.
    const auto extent = global[use.dim];
    if (extent % parts_of(mesh, finer, use.dim) == 0 && extent % parts_of(mesh, to, use.dim) == 0) result = finer;
  }
  return result;
}

constexpr sharding without_unit_splits(const mesh_shape& mesh, const sharding& s) {
  sharding result = s;
  result.splits.count = 0;
  for (int i = 0; i < s.splits.count; ++i)
    if (mesh.sizes.items[s.splits.items[i].axis] > 1) result.splits.items[result.splits.count++] = s.splits.items[i];
  for (int i = result.splits.count; i < s.splits.count; ++i) result.splits.items[i] = axis_use{};
  return result;
}

/// The first step of a cheapest path from `from` to `to`, right for any extents. `to` is partial over no axis over which
/// `from` is not. A slice may be a mere change of name: see same_data.
constexpr reshard_step next_step(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  reshard_step step;
  step.to = from;
  if (same_layout(from, to)) return step;
  step.what = reshard_step::kind::slice;
  step.to = to;
  if (same_data(mesh, global, from, to)) return step;

  const sharding source = without_unit_splits(mesh, from);
  const sharding target = without_unit_splits(mesh, to);
  const axis_mask pending = from.partial & ~to.partial;
  if (mesh.size_of(pending) > 1) {
    step = first_reduction(mesh, global, source, target, pending);
  } else {
    step.axes = movement_axes(mesh, global, source, target);
    if (step.axes != 0) {
      const axis_mask used = source.split_axes() | source.partial;
      step.to = source;
      if (has_empty_parts(mesh, global, source)) step.to = renamed(mesh, global, source, target);
      if (step.to.splits == source.splits) step.to = continued(mesh, global, source, target, ~used);
      if (step.to.splits == source.splits && mesh.size_of(step.axes) > 2) step.to = shared_out(mesh, global, source, target);
      if (step.to.splits == source.splits) {
        step.what = reshard_step::kind::move;
        step.to = target;
      } else {
        step.axes = 0;
      }
    }
    step.to.partial = from.partial;
    step.to.kind = from.kind;
  }
  if (step.to.splits == target.splits) step.to.splits = to.splits;
  step.to.open = 0;
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

/// What one device sends on the whole way from `from` to `to`, and in how many collectives.
struct reshard_price {
  std::int64_t bytes = 0;
  int messages = 0;
};
constexpr reshard_price price_of_reshard(const mesh_shape& mesh, const extents& global, sharding from, const sharding& to,
                                         std::int64_t bytes_per_elem) {
  reshard_price price;
  for (;;) {
    const auto step = next_step(mesh, global, from, to);
    if (step.what == reshard_step::kind::none) return price;
    price.bytes += step_bytes(mesh, global, from, step, bytes_per_elem);
    if (step.what != reshard_step::kind::slice) ++price.messages;
    from = step.to;
  }
}
constexpr std::int64_t reshard_bytes(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                                     std::int64_t bytes_per_elem) {
  return price_of_reshard(mesh, global, from, to, bytes_per_elem).bytes;
}

}  // namespace gspmd::detail
