// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/reshape_traffic.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// The collective of a device, as one of two descriptors: data that moves, and data that is reduced. The planner
/// creates the descriptors and communicators execute them. The cost of a plan is computed from them without listing
/// devices.
namespace gspmd::detail {

/// The operator of the user's program that a collective belongs to, for messages: see location (graph.hpp).
struct collective_origin {
  bool is_known = false;  // false for a direct call of a communicator outside of a program
  operator_code op;
  const char* file = nullptr;
  int line = 0;
};

/// Data moves inside the groups over `axes`. For its box under `to`, a device receives the elements that the members of
/// its group hold under `from`. Every axis in `axes` splits `from`, so each element has one source in the group. The
/// boxes of the members cover the elements that the device needs (see movement_axes). If `axes` is empty, each device
/// cuts its own shard. Neither side is partial.
///
/// A movement with a map connects two tensors with the same splits. Their extents can differ in the dims of the map. A
/// device receives the elements that the map moves into its box. For a shift these are its own elements and a halo from
/// the next devices along the dim (GSPMD 4.3). For a slice or a padding, any device can send, because the parts of the
/// two tensors begin at different elements. If the map reshapes, both the shapes and the splits differ. Axes that only
/// `to` uses then select among the elements that the device holds.
struct movement {
  extents from_global, to_global;
  sharding from, to;
  axis_mask axes = 0;
  const index_map* map = nullptr;  // null: every element keeps its index
  // of a movement without a map: the order of the operand's dims in memory (local_value)
  inline_vec<std::int8_t, max_rank> from_order = {};
  // has a map: for GCC with -fsanitize=undefined a comparison of an address with null is not a constant expression
  bool is_mapped = false;
  collective_origin origin{};
  std::uint32_t number = 0;  // 0: not yet numbered (meeting_subject.hpp)

  constexpr movement() = default;
  constexpr movement(const extents& global, const sharding& from_, const sharding& to_, axis_mask over,
                     const collective_origin& asked = {})
      : from_global(global), to_global(global), from(from_), to(to_), axes(over), origin(asked) {}
  /// `by` must outlive the movement.
  constexpr movement(const mesh_shape& mesh, const extents& operand, const sharding& from_, const extents& result,
                     const sharding& to_, const index_map& by, const collective_origin& asked = {})
      : from_global(operand),
        to_global(result),
        from(from_),
        to(to_),
        axes(traffic_of(mesh, operand, from_, result, to_, by).axes),
        map(&by),
        is_mapped(true),
        origin(asked) {}
};

/// Values that are partial over (at least) `axes` are reduced inside the groups over `axes`. `to` has the splits of
/// `from` (all_reduce), or further splits (reduce_scatter). The box of a device under `to` is inside its box under
/// `from`, which all members share.
struct reduction {
  extents global;
  sharding from, to;
  axis_mask axes = 0;
  monoid reduced_by = monoid::add;
  collective_origin origin{};
  std::uint32_t number = 0;
};

enum class collective_kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, all_to_all, collective_permute };

constexpr const char* name_of(collective_kind kind) {
  switch (kind) {
    case collective_kind::all_reduce: return "all_reduce";
    case collective_kind::reduce_scatter: return "reduce_scatter";
    case collective_kind::all_gather: return "all_gather";
    case collective_kind::all_to_all: return "all_to_all";
    case collective_kind::collective_permute: return "collective_permute";
  }
  return "?";
}

/// The difference between the splits of one dim, without axes of size 1. It has the shared axes at the start of both
/// lists, and the remaining axes.
struct split_change {
  int dim = 0;
  std::int64_t common_parts = 1;            // the number of parts by the shared axes
  std::int64_t from_rest = 1, to_rest = 1;  // the number of parts of each by the remaining axes
  axis_mask common_axes = 0;
  axis_mask from_axes = 0, to_axes = 0;  // the remaining axes

  /// Returns true if neither list continues the other list, so that parts change places.
  [[nodiscard]] constexpr bool is_reordered() const { return from_axes != 0 && to_axes != 0; }
  /// Returns true if so few parts hold data that the changed axes bring no device an element that it lacks.
  [[nodiscard]] constexpr bool keeps_tiles(const mesh_shape& mesh, const sharding& from, const sharding& to,
                                           const extents& global) const {
    if ((from_axes & ~to_axes) != 0) return false;
    const auto extent = global.items[dim];
    const auto parts = common_parts * to_rest;
    const auto step = shard_extent(extent, parts);
    if (step * (parts - 1) < extent)
      return false;  // all parts hold data, so all axes separate parts, and these axes differ from those of `from`
    const auto separating = separating_axes(mesh, to, dim, extent);
    if (separating.begin != separating.end && step != shard_extent(extent, common_parts * from_rest)) return false;
    return separating.names_same_axes(mesh, separating_axes(mesh, from, dim, extent));
  }
};

/// Returns the change of `dim`, whose splits start at `f` in `from` and at `t` in `to`. Advances `f` and `t` past these
/// splits.
constexpr split_change take_change(const mesh_shape& mesh, int dim, const axis_use*& f, const axis_use* f_end, const axis_use*& t,
                                   const axis_use* t_end) {
  const std::int32_t* const sizes = mesh.sizes.items;
  split_change result;
  result.dim = dim;
  while (f != f_end && t != t_end && f->dim == dim && t->dim == dim) {
    if (sizes[f->axis] == 1) {
      ++f;
    } else if (sizes[t->axis] == 1) {
      ++t;
    } else {
      if (f->axis != t->axis) break;
      result.common_parts *= sizes[f->axis];
      result.common_axes |= axis_mask{1} << f->axis;
      ++f;
      ++t;
    }
  }
  for (; f != f_end && f->dim == dim; ++f) {
    result.from_rest *= sizes[f->axis];
    result.from_axes |= axis_mask{sizes[f->axis] > 1} << f->axis;
  }
  for (; t != t_end && t->dim == dim; ++t) {
    result.to_rest *= sizes[t->axis];
    result.to_axes |= axis_mask{sizes[t->axis] > 1} << t->axis;
  }
  return result;
}

constexpr split_change split_change_of(const mesh_shape& mesh, const sharding& from, const sharding& to, int dim) {
  const axis_use* f = from.splits.items;
  const axis_use* t = to.splits.items;
  const axis_use* const f_end = f + from.splits.count;
  const axis_use* const t_end = t + to.splits.count;
  while (f != f_end && f->dim != dim) ++f;
  while (t != t_end && t->dim != dim) ++t;
  return take_change(mesh, dim, f, f_end, t, t_end);
}

/// Returns true if the parts of the shared axes have the same boundaries on both sides. Rounding up can shift them:
///   9 over 2 is 5,4; 9 over 2x2 is 3,3,3,0: the second pair begins at 6, not at 5  -> false
///   8 over 2 is 4,4; 8 over 2x2 is 2,2,2,2                                         -> true
constexpr bool nests(const split_change& change, std::int64_t global_extent) {
  const auto from = change.from_rest * shard_extent(global_extent, change.common_parts * change.from_rest);
  const auto to = change.to_rest * shard_extent(global_extent, change.common_parts * change.to_rest);
  return from == to || (from >= global_extent && to >= global_extent);
}

/// Calls `visit` with the change of every dim whose splits differ.
template <class Visit>
constexpr void for_each_split_dim(const mesh_shape& mesh, const sharding& from, const sharding& to, Visit visit) {
  const axis_use* f = from.splits.items;
  const axis_use* t = to.splits.items;
  const axis_use* const f_end = f + from.splits.count;
  const axis_use* const t_end = t + to.splits.count;
  while (f != f_end || t != t_end) {
    const int dim = t == t_end || (f != f_end && f->dim < t->dim) ? f->dim : t->dim;
    const split_change change = take_change(mesh, dim, f, f_end, t, t_end);
    if ((change.from_axes | change.to_axes) != 0) visit(change);
  }
}

/// The largest number of movements, or reductions, in the same messages.
inline constexpr int most_moved_together = 16;

/// Returns the axes whose groups contain all data of a movement. For each dim whose split changes, these are the axes
/// of `from` after the shared axes. If rounding shifts the boundaries, these are all axes of `from` on the dim. Axes of
/// size 1 are ignored. Returns 0 if every device already holds the data that it needs.
///   8 over [x] -> 8 over [y]: x     9 over [x] -> 9 over [x,y], 2x2: x, because the boundaries shift
constexpr axis_mask movement_axes(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  axis_mask axes = 0, left = 0, taken = 0;
  for_each_split_dim(mesh, from, to, [&](const split_change& change) {
    left |= change.from_axes;
    taken |= change.to_axes;
    if (change.keeps_tiles(mesh, from, to, global)) return;
    axes |= change.from_axes;
    if (change.common_axes != 0 && !nests(change, global.items[change.dim])) axes |= change.common_axes;
  });
  if (axes != 0 && left != taken) return elements(global) == 0 ? 0 : axes;  // the tiles differ
  if (axes != 0 && same_tiles(mesh, global, from, to)) return 0;
  return axes;
}

/// Returns true if the box of every device under `to` is inside its box under `from`, as reductions and local slices
/// require.
constexpr bool lies_inside(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  return movement_axes(mesh, global, from, to) == 0;
}

/// Returns the kind of a movement over at least one axis:
///   [x,y] -> [x]                      each device collects its group's shards     all_gather
///   [x],[] -> [],[y]                  the same, cut by another axis before it     all_gather
///   [x,y] -> [y,x], [x],[y] -> [y],[x]  same tiles, other devices                 collective_permute
///   [x],[] -> [],[x], and the rest                                                all_to_all
constexpr collective_kind classify(const mesh_shape& mesh, const movement& m) {
  if (m.map != nullptr) return collective_kind::collective_permute;
  bool same_tiles = true, reordered = false;
  axis_mask given_up = 0, taken = 0;
  for_each_split_dim(mesh, m.from, m.to, [&](const split_change& change) {
    same_tiles = same_tiles && change.from_rest == change.to_rest;
    reordered = reordered || change.is_reordered();
    given_up |= change.from_axes;
    taken |= change.to_axes;
  });
  if (same_tiles) return collective_kind::collective_permute;
  if (!reordered && (given_up & taken) == 0) return collective_kind::all_gather;
  return collective_kind::all_to_all;
}

constexpr collective_kind classify(const mesh_shape& mesh, const reduction& r) {
  bool changes = false;
  for_each_split_dim(mesh, r.from, r.to, [&](const split_change&) { changes = true; });
  return changes ? collective_kind::reduce_scatter : collective_kind::all_reduce;
}

/// Returns the largest number of indices of one dim that a device lacks for its new part. Neither list of axes may
/// reorder the other list. If rounding shifts the boundaries, the last parts of a group are shifted most.
///   9 over 2 (5,4) -> 9 over 2x2 (3,3,3,0): 1, because the second part lacks index 5
constexpr std::int64_t lacking(const split_change& change, std::int64_t global_extent) {
  const auto from = shard_extent(global_extent, change.common_parts * change.from_rest);
  const auto to = shard_extent(global_extent, change.common_parts * change.to_rest);
  const auto less = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  if (change.from_axes == 0) {
    //   from |----a----|----a----|--      the new box of the last device of group t-1 ends t * shift after its old box,
    //   to   |--b--|--b--|--b--|--        and the tensor ends E - t * a after it
    const auto shift = change.to_rest * to - from;
    if (shift == 0 || nests(change, global_extent)) return 0;
    const auto at = [&](std::int64_t t) { return less(less(to, t * shift), global_extent - t * from); };
    const auto top = global_extent / (from + shift);  // the crossing of the two terms
    std::int64_t most = 0;
    for (auto t = top; t <= top + 1; ++t)
      if (t >= 1 && t < change.common_parts && at(t) > most) most = at(t);
    return most;
  }
  //   from |--a--|--a--|--a--|--       the last device of a group begins latest
  //   to   |----b----|----b----|--
  const auto shift = change.from_rest * from - to;
  const auto groups = (global_extent + to - 1) / to;  // groups that receive data
  const auto at = [&](std::int64_t group) {
    const auto wanted = less(to, global_extent - group * to);
    const auto held = wanted - group * shift - (change.from_rest - 1) * from;
    return wanted - (held < 0 ? 0 : held);
  };
  const auto last = at(groups - 1);
  return groups >= 2 && at(groups - 2) > last ? at(groups - 2) : last;
}

/// Returns the number of the `elems` elements of a device's new box that the device already held, if one dim has a new
/// split.
constexpr std::int64_t kept(std::int64_t elems, const split_change& change, std::int64_t global_extent) {
  if (change.is_reordered()) return 0;
  const auto extent = shard_extent(global_extent, change.common_parts * change.to_rest);
  return elems / extent * (extent - lacking(change, global_extent));
}

/// Returns the most bytes that a device receives: its box under `to` without the elements that it already held. With n
/// devices in a group this is (n-1) shards for all_gather, (n-1)/n of the shard for all_to_all, and the shard for a
/// permutation. Devices send the same bytes if next_step chose the movement and shards are even. If an uneven dim moves
/// to another dim, the sender of a full shard sends more than any device receives:
///   [9,16384] {x,-} -> {-,x} over 8: 18,432 elements received, 28,672 sent by a device with two rows
constexpr std::int64_t bytes_sent(const mesh_shape& mesh, const movement& m, std::int64_t bytes_per_elem) {
  if (mesh.size_of(m.axes) == 1) return 0;
  if (m.map != nullptr) return traffic_of(mesh, m.from_global, m.from, m.to_global, m.to, *m.map).elems() * bytes_per_elem;
  const extents& global = m.to_global;
  const std::int64_t box_elems = local_elements(mesh, global, m.to);
  if (box_elems == 0) return 0;
  std::int64_t kept_elems = box_elems;
  std::int64_t padded_elems = box_elems, shard_elems = box_elems;
  bool gathers = true;
  for_each_split_dim(mesh, m.from, m.to, [&](const split_change& change) {
    if (change.keeps_tiles(mesh, m.from, m.to, global)) return;
    const auto global_extent = global.items[change.dim];
    gathers = gathers && change.to_axes == 0 && nests(change, global_extent);
    if (gathers) {
      const auto extent = shard_extent(global_extent, change.common_parts);
      const auto shard = shard_extent(global_extent, change.common_parts * change.from_rest);
      padded_elems = padded_elems / extent * (shard * change.from_rest);
      shard_elems = shard_elems / extent * shard;
    }
    kept_elems = kept(kept_elems, change, global_extent);
  });
  if (gathers) return (padded_elems - shard_elems) * bytes_per_elem;  // whole shards are sent, with their padding
  return (box_elems - kept_elems) * bytes_per_elem;
}

/// Returns the bytes that one of n devices in a group sends. This is 2(n-1)/n of the buffer for all_reduce (the ring
/// algorithm), and (n-1) result shards for reduce_scatter.
constexpr std::int64_t bytes_sent(const mesh_shape& mesh, const reduction& r, std::int64_t bytes_per_elem) {
  const auto n = mesh.size_of(r.axes);
  const auto result_bytes = local_elements(mesh, r.global, r.to) * bytes_per_elem;
  if (classify(mesh, r) == collective_kind::reduce_scatter) return (n - 1) * result_bytes;
  return 2 * result_bytes - 2 * result_bytes / n;  // 2(n-1)/n of the result, rounded up
}

}  // namespace gspmd::detail
