// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Finds the path from one sharding to another. The path takes little time on the mesh's network and sends few bytes
/// (GSPMD 4.5); ties are broken by fewer messages.
///
/// A path without a reduction needs little search. One movement brings each device exactly the elements that it lacks,
/// and no detour brings fewer. So one movement is a cheapest path, and no device holds more than the source and the
/// target. Slices before the movement cost nothing, and prevent that a device serves more peers than necessary. A dim
/// with padding is gathered by way of another dim if that saves enough (by_less_padding).
///
/// A reduction is cheaper if it leaves smaller shards. Axes along which the value is replicated can therefore share the
/// work:
///   partial over x, replicated over y, needed whole   reduce_scatter over x into shards over x and y, then all_gather
/// The rest of the path is again one movement. These paths are compared by the formulas of collective.hpp. The formulas
/// are exact for even shards and upper bounds otherwise. tests/detail/passes/choose/reshard.cpp compares the choice
/// with an exhaustive search.
namespace gspmd::detail {

/// One step on the path from one sharding to another.
struct reshard_step {
  enum class kind : std::uint8_t { none, slice, reduce, move, terms };
  kind what = kind::none;
  sharding to;
  axis_mask axes = 0;  // the axes over which a reduce or move communicates
};

/// Returns `from`, its dims split further by axes of `allowed` in the order of `to`. Each device must find its new
/// shard in its old shard, and the new shard must contain the shard under `to`.
///   {x,-} towards {xy,z}: {xy,z}    {x,-} towards {yx,z}: {x,z}
///   {-} of 9 towards {xy}, 2x2: {xy}, but {-} if y is not allowed: 5,4 does not continue to 3,3,3,0
constexpr sharding continued(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                             axis_mask allowed) {
  sharding result = from;
  for (int at = 0; at < to.splits.count;) {
    const int dim = to.splits[at].dim;
    bool is_prefix = true;
    for (const auto& use : from.splits) {  // the splits of `to` must begin with these splits
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

/// The time, the elements sent and the messages of all steps of a path.
struct path_cost {
  std::int64_t time = 0;  // 0 if only bytes count
  std::int64_t elems = 0;
  int messages = 0;

  constexpr void add(const path_cost& rest) {
    if (rest.time != 0) time = add_times(time, rest.time);
    elems += rest.elems;
    messages += rest.messages;
  }
  [[nodiscard]] constexpr bool is_less_than(const path_cost& other) const {
    if (time != other.time) return time < other.time;
    return elems != other.elems ? elems < other.elems : messages < other.messages;
  }
};

constexpr std::int64_t cost_as_written(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  const auto axes = movement_axes(mesh, global, from, to);
  return axes == 0 ? 0 : bytes_sent(mesh, movement{global, from, to, axes}, 1);
}

/// Returns true if a dim is split into more parts than it has elements.
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

/// Returns the sharding with the same tiles as `from` that makes a movement to `to` send the least. An axis that
/// separates no parts with data may split any dim.
///   [1,1] {x,-} to {-,y}: {-,x}, and the element stays on the first device. A movement from {x,-} would gather all
///   parts of dim 0
constexpr sharding renamed(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  sharding best = from;
  if (!has_empty_parts(mesh, global, from)) return best;
  auto least = cost_as_written(mesh, global, from, to);
  for (bool improved = true; improved && least > 0;) {
    improved = false;
    const sharding start = best;
    for (int i = 0; i < start.splits.count; ++i) {
      const axis_use* const moved = start.splits.items + i;
      const auto separating = separating_axes(mesh, start, moved->dim, global[moved->dim]);
      if (separating.begin <= moved && moved < separating.end && mesh.sizes[moved->axis] > 1)
        continue;  // on another dim it would separate other parts
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

constexpr path_cost cost_of_move(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& from,
                                 const sharding& to, std::int64_t bytes_per_elem) {
  const auto cost_from = [&](const sharding& source, std::int64_t elems) {
    path_cost cost{0, elems, 1};
    if (elems == 0) return path_cost{};
    if (net.is_by_bytes(mesh.device_count())) return cost;
    const movement m{global, source, to, movement_axes(mesh, global, source, to)};
    cost.time = time_of_collective(mesh, net, classify(mesh, m), m.axes, elems * bytes_per_elem);
    return cost;
  };
  count_planning();
  const auto elems = cost_as_written(mesh, global, from, to);
  if (elems == 0) return {};
  if (!has_empty_parts(mesh, global, from)) return cost_from(from, elems);
  const sharding other = renamed(mesh, global, from, to);
  return cost_from(other, cost_as_written(mesh, global, other, to));
}

/// Splits `s` further by `axes`, into the smallest shards. Prefers dims that end up finer under `s` than under `to`,
/// because these dims are gathered later and nothing else moves along them. If `small_first` is true, the size of the
/// shards counts for more, else this preference. Skips axes that make no smaller shard inside the shard of `from`.
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

constexpr reshard_step next_step(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& from,
                                 const sharding& to, std::int64_t bytes_per_elem = 1);

/// Compares paths that reduce a value over its partial axes, by their total cost, and returns the first step. If all
/// shards are even, the plain path or a path with helping axes is cheapest. With padding, the best path found is within
/// a tenth of the cheapest, except for small tensors (tests/detail/passes/choose/reshard_uneven.cpp counts these).
class reduction_ways {
 public:
  constexpr reduction_ways(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& to,
                           std::int64_t bytes_per_elem)
      : mesh_(mesh), net_(net), global_(global), to_(to), bytes_per_elem_(bytes_per_elem) {}

  /// Returns the first step from `from`, which is partial over `pending`.
  [[nodiscard]] constexpr reshard_step first_step(const sharding& from, axis_mask pending) const {
    way best = plain(from, pending);
    if (best.is_cheapest) return best.step;
    const axis_mask idle = from.equal_axes(mesh_);
    const bool is_even = try_scattered(from, best.ahead, (idle | pending) & ~best.ahead.split_axes(), pending, false, best);
    if (is_even && best.is_even && padded_dims(mesh_, global_, to_) == 0) return best.step;
    if ((pending & (pending - 1)) != 0 || !(best.ahead.splits == from.splits))
      try_scattered(from, from, pending | idle, pending, true, best);
    for (int axis = 0; axis < mesh_.axis_count(); ++axis)  // one axis after the other, the dim with less padding first
      if ((pending & axis_bit(axis)) != 0 && mesh_.sizes[axis] > 1)
        for (int dim = 0; dim < global_.count; ++dim) {
          sharding fine = from;
          fine.add_split(axis, dim);
          if (lies_inside(mesh_, global_, from, fine)) try_step(from, fine, axis_bit(axis), pending, best);
        }
    for (int dim = 0; dim < global_.count; ++dim)
      for (const bool with_idle : {false, true}) {
        if (with_idle && idle == 0) continue;
        const axis_mask axes = with_idle ? pending | idle : pending;
        sharding fine = from;
        for (int axis = 0; axis < mesh_.axis_count(); ++axis)
          if ((axes & axis_bit(axis)) != 0 && mesh_.sizes[axis] > 1) fine.add_split(axis, dim);
        if (lies_inside(mesh_, global_, from, fine)) try_step(from, fine, pending, pending, best);
      }
    sharding moved = from;
    moved.splits.clear();
    for (const auto& use : to_.splits)
      if ((from.partial & axis_bit(use.axis)) == 0) moved.splits.push_back(use);
    if (!(moved.splits == from.splits) && local_elements(mesh_, global_, moved) <= local_elements(mesh_, global_, from)) {
      path_cost cost = plain(moved, pending).cost;
      cost.add(cost_of_move(mesh_, net_, global_, from, moved, bytes_per_elem_));
      if (cost.is_less_than(best.cost)) best.consider(cost, next_step(mesh_, net_, global_, from, moved, bytes_per_elem_));
    }
    sharding sliced = continued(mesh_, global_, from, to_, idle);
    for (const bool help : {false, true}) {
      if (help) spread(mesh_, global_, from, to_, idle & ~sliced.split_axes(), true, sliced);
      path_cost cost;
      cost.add(sent(sliced, whole(sliced, pending), pending));
      cost.add(cost_of_move(mesh_, net_, global_, sliced, to_, bytes_per_elem_));
      if (sliced.splits == from.splits) best.consider(cost, {reshard_step::kind::reduce, whole(sliced, pending), pending});
      else best.consider(cost, {reshard_step::kind::slice, sliced, 0});
    }
    return best.step;
  }

 private:
  struct way {
    reshard_step step;
    path_cost cost;
    sharding ahead;            // `from`, continued towards the target
    bool is_cheapest = false;  // no other path needs to be compared
    bool is_even = false;

    constexpr void consider(const path_cost& other, const reshard_step& first) {
      if (!other.is_less_than(cost)) return;
      cost = other;
      step = first;
    }
  };

  static constexpr sharding whole(sharding s, axis_mask pending) {
    s.partial &= ~pending;
    return s;
  }
  [[nodiscard]] constexpr path_cost sent(const sharding& a, const sharding& b, axis_mask axes) const {
    count_planning();
    const reduction r{global_, a, b, axes, a.reduced_by};
    path_cost cost{0, bytes_sent(mesh_, r, 1), 0};
    if (cost.elems == 0) return cost;
    cost.messages = 1;
    if (!by_bytes_) cost.time = time_of_collective(mesh_, net_, classify(mesh_, r), axes, cost.elems * bytes_per_elem_);
    return cost;
  }

  /// Returns the plain path: reduce_scatter into the splits of the target, all_reduce over the remaining axes, then one
  /// movement.
  [[nodiscard]] constexpr way plain(const sharding& from, axis_mask pending) const {
    using kind = reshard_step::kind;
    const axis_mask idle = from.equal_axes(mesh_);
    way w;
    w.ahead = continued(mesh_, global_, from, to_, idle | pending);
    const axis_mask added = w.ahead.split_axes() & ~from.split_axes();
    const axis_mask scattered = added & pending;
    const axis_mask left = pending & ~scattered;
    w.step = {kind::reduce, w.ahead, scattered != 0 ? scattered : pending};
    if (scattered == 0 && added != 0) w.step = {kind::slice, w.ahead, 0};
    else w.step.to.partial &= ~w.step.axes;
    const bool arrives = w.ahead.splits == to_.splits;
    w.is_even = local_elements(mesh_, global_, w.ahead) * mesh_.size_of(added) == local_elements(mesh_, global_, from);
    const axis_mask helpers = arrives && mesh_.size_of(pending) == 2 ? 0 : idle & ~added;
    w.is_cheapest = helpers == 0 && arrives && (scattered == 0 || (left == 0 && w.is_even));
    if (scattered != 0) w.cost.add(sent(from, w.ahead, scattered));
    if (left != 0) w.cost.add(sent(w.ahead, whole(w.ahead, left), left));
    w.cost.add(cost_of_move(mesh_, net_, global_, w.ahead, to_, bytes_per_elem_));
    return w;
  }
  /// Considers the path that reduces `from` into `fine` over `first` and then takes the plain path.
  constexpr void try_step(const sharding& from, sharding fine, axis_mask first, axis_mask pending, way& best) const {
    path_cost cost;
    cost.add(sent(from, fine, first));
    fine.partial &= ~first;
    if (cost.time > best.cost.time || (cost.time == best.cost.time && cost.elems >= best.cost.elems)) return;
    const axis_mask left = pending & ~first;
    if (left != 0) cost.add(plain(fine, left).cost);
    else cost.add(cost_of_move(mesh_, net_, global_, fine, to_, bytes_per_elem_));
    best.consider(cost, {reshard_step::kind::reduce, fine, first});
  }
  /// Considers the path that begins with one reduce_scatter over the most axes, into `start` spread over `axes`.
  /// Returns true if no shard has padding then.
  constexpr bool try_scattered(const sharding& from, const sharding& start, axis_mask axes, axis_mask pending, bool small_first,
                               way& best) const {
    sharding fine = start;
    spread(mesh_, global_, from, to_, axes, small_first, fine);
    const axis_mask cut = fine.split_axes() & ~from.split_axes();
    if ((cut & pending) != 0) try_step(from, fine, cut & pending, pending, best);
    return (axes & ~cut) == 0 &&
           local_elements(mesh_, global_, fine) * mesh_.size_of(cut) == local_elements(mesh_, global_, from);
  }

  const mesh_shape& mesh_;
  const network_rates& net_;
  const extents& global_;
  const sharding& to_;
  std::int64_t bytes_per_elem_;
  bool by_bytes_ = net_.is_by_bytes(mesh_.device_count());
};

/// Returns `from`, split further by axes of `to` that split nothing under `from` and belong to a dim with parts that
/// change places. Devices that differ in these axes hold equal data. If each device first takes its own share, no
/// device sends the data for all devices.
constexpr sharding shared_out(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  sharding result = from;
  const axis_mask equal = from.equal_axes(mesh);
  for (const auto& use : to.splits) {
    if ((equal & axis_bit(use.axis)) == 0) continue;
    if (!split_change_of(mesh, from, to, use.dim).is_reordered()) continue;
    sharding finer = result;
    finer.add_split(use.axis, use.dim);
    // Even parts only: rounding leaves fewer devices with data, and less data in its place.
    const auto extent = global[use.dim];
    if (extent % parts_of(mesh, finer, use.dim) == 0 && extent % parts_of(mesh, to, use.dim) == 0) result = finer;
  }
  return result;
}

/// A gather sends whole shards with their padding. Returns an intermediate sharding with the gathered axes on another
/// dim, if both movements together save the time of a message. Otherwise returns `to`.
///   [9,1000] {x,-} over 8 towards {-,-}: by {-,x}. The shards have 2,2,2,2,1,0,0,0 rows. One gather sends 14,000
///   elements. The two movements send 1,125 and 7,875.
constexpr sharding by_less_padding(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& from,
                                   const sharding& to, std::int64_t bytes_per_elem) {
  const axis_mask gathered = from.split_axes() & ~to.split_axes();
  if (gathered == 0 || padded_dims(mesh, global, from) == 0) return to;
  const auto time_of = [&](const sharding& a, const sharding& b) {
    const auto cost = cost_of_move(mesh, net, global, a, b, bytes_per_elem);
    return cost.time != 0 ? cost.time : net.one_switch.time_of(cost.elems * bytes_per_elem);
  };
  sharding best = to, kept;
  for (const auto& use : from.splits)
    if ((gathered & axis_bit(use.axis)) == 0) kept.splits.push_back(use);
  auto least = time_of(from, to) - least_picoseconds_of_search;
  for (int d = 0; d < global.count && least > 0; ++d) {
    sharding even = kept;
    for (const auto& use : from.splits)
      if ((gathered & axis_bit(use.axis)) != 0) even.add_split(use.axis, d);
    if (even.splits == from.splits || local_elements(mesh, global, even) >= local_elements(mesh, global, from)) continue;
    const auto time = add_times(time_of(from, even), time_of(even, to));
    if (time >= least) continue;
    least = time;
    best = even;
  }
  return best;
}

constexpr sharding without_unit_splits(const mesh_shape& mesh, const sharding& s) {
  sharding result = s;
  result.splits.count = 0;
  for (int i = 0; i < s.splits.count; ++i)
    if (mesh.sizes.items[s.splits.items[i].axis] > 1) result.splits.items[result.splits.count++] = s.splits.items[i];
  for (int i = result.splits.count; i < s.splits.count; ++i) result.splits.items[i] = axis_use{};
  return result;
}

/// Returns the first step of a cheapest path from `from` to `to`, for any extents. Its kind is `none` if nothing is
/// left to do. A slice may only change the name of the sharding: see same_data.
constexpr reshard_step next_step(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& from,
                                 const sharding& to, std::int64_t bytes_per_elem) {
  count_planning();
  reshard_step step;
  step.to = from;
  if (from == to) return step;
  const axis_mask kept = from.reduced_by == to.reduced_by ? from.partial : 0;
  if (mesh.size_of(to.partial & ~kept) > 1 || (to.partial & from.partial & ~kept) != 0) {  // the last step sends nothing
    sharding whole = to;
    whole.partial &= kept;
    if (whole.partial == 0) whole.reduced_by = from.partial == 0 ? from.reduced_by : monoid::add;
    step = next_step(mesh, net, global, from, whole, bytes_per_elem);
    if (step.what == reshard_step::kind::none) step = {reshard_step::kind::terms, to, 0};
    return step;
  }
  step.what = reshard_step::kind::slice;
  step.to = to;
  if (same_data(mesh, global, from, to)) return step;

  const sharding source = without_unit_splits(mesh, from);
  const sharding target = without_unit_splits(mesh, to);
  const axis_mask pending = from.partial & ~to.partial;
  if (mesh.size_of(pending) > 1) {
    step = reduction_ways(mesh, net, global, target, bytes_per_elem).first_step(source, pending);
  } else {
    step.axes = movement_axes(mesh, global, source, target);
    if (step.axes != 0) {
      step.to = source;
      if (has_empty_parts(mesh, global, source)) step.to = renamed(mesh, global, source, target);
      if (step.to.splits == source.splits) step.to = continued(mesh, global, source, target, source.equal_axes(mesh));
      if (step.to.splits == source.splits && mesh.size_of(step.axes) > 2) step.to = shared_out(mesh, global, source, target);
      if (step.to.splits == source.splits) {
        step.what = reshard_step::kind::move;
        step.to = by_less_padding(mesh, net, global, source, target, bytes_per_elem);
        if (step.to.splits != target.splits) step.axes = movement_axes(mesh, global, source, step.to);
      } else {
        step.axes = 0;
      }
    }
    step.to.partial = from.partial;
    step.to.reduced_by = from.reduced_by;
    step.to.varying = from.varying;
  }
  if (step.to.splits == target.splits) step.to.splits = to.splits;
  return step;
}

/// Returns the bytes that one device sends in one step.
constexpr std::int64_t step_bytes(const mesh_shape& mesh, const extents& global, const sharding& from, const reshard_step& step,
                                  std::int64_t bytes_per_elem) {
  if (step.what == reshard_step::kind::reduce)
    return bytes_sent(mesh, reduction{global, from, step.to, step.axes, from.reduced_by}, bytes_per_elem);
  if (step.what == reshard_step::kind::move) return bytes_sent(mesh, movement{global, from, step.to, step.axes}, bytes_per_elem);
  return 0;
}

/// Calls `visit(from, step)` for each step from one sharding to another. Each element has `bytes_per_elem` bytes.
template <class Visit>
constexpr void for_each_step(const mesh_shape& mesh, const network_rates& net, const extents& global, sharding from,
                             const sharding& to, std::int64_t bytes_per_elem, Visit visit) {
  for (;;) {
    const auto step = next_step(mesh, net, global, from, to, bytes_per_elem);
    if (step.what == reshard_step::kind::none) return;
    visit(from, step);
    from = step.to;
  }
}

/// Returns the collective of a step that reduces or moves.
constexpr collective_kind kind_of_step(const mesh_shape& mesh, const extents& global, const sharding& from,
                                       const reshard_step& step) {
  return step.what == reshard_step::kind::move ? classify(mesh, movement{global, from, step.to, step.axes})
                                               : classify(mesh, reduction{global, from, step.to, step.axes, from.reduced_by});
}

/// Returns the time of one step that sends `bytes`.
constexpr std::int64_t step_time(const mesh_shape& mesh, const network_rates& net, const extents& global, const sharding& from,
                                 const reshard_step& step, std::int64_t bytes) {
  if (bytes == 0) return 0;
  if (net.is_by_bytes(mesh.device_count())) return net.one_switch.time_of(bytes);
  return time_of_collective(mesh, net, kind_of_step(mesh, global, from, step), step.axes, bytes);
}

/// The price of a whole path from one sharding to another: its time, the bytes that one device sends, and its
/// collectives.
struct reshard_price {
  std::int64_t time = 0;  // picoseconds
  std::int64_t bytes = 0;
  int messages = 0;

  [[nodiscard]] constexpr bool is_less_than(const reshard_price& other) const {
    return time != other.time ? time < other.time : bytes < other.bytes;
  }
};
constexpr reshard_price price_of_reshard(const mesh_shape& mesh, const network_rates& net, const extents& global,
                                         const sharding& from, const sharding& to, std::int64_t bytes_per_elem) {
  reshard_price price;
  const bool by_bytes = net.is_by_bytes(mesh.device_count());
  for_each_step(mesh, net, global, from, to, bytes_per_elem, [&](const sharding& at, const reshard_step& step) {
    const auto bytes = step_bytes(mesh, global, at, step, bytes_per_elem);
    if (!by_bytes) price.time = add_times(price.time, step_time(mesh, net, global, at, step, bytes));
    price.bytes += bytes;
    if (step.what == reshard_step::kind::reduce || step.what == reshard_step::kind::move) ++price.messages;
  });
  if (by_bytes) price.time = net.one_switch.time_of(price.bytes);
  return price;
}

}  // namespace gspmd::detail
