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

/// A collective of a device, as one of two descriptors: data that moves, and data that is reduced. The planner makes them, communicators
/// carry them out, and the cost of a plan is computed from them without ever listing devices.
namespace gspmd::detail {

/// The operator of the user's program that a collective is for, for messages: see location (graph.hpp).
struct collective_origin {
  bool is_known = false;  // a program asks for it, no call by hand
  operator_code op;
  const char* file = nullptr;
  int line = 0;
};

/// Data moves inside the groups over `axes`. A device receives, for its box under `to`, the elements that the members of
/// its group hold under `from`. Every axis in `axes` splits `from`, so each element has one source in the group; the
/// boxes of the members cover what the device needs (see movement_axes). No axes: each device cuts its own shard.
/// Neither side is partial.
///
/// A movement with a map goes between two tensors, of other extents where the map has a dim, with the same splits: a device receives
/// the elements that become those of its box. Of a shift these are its own but for the halo, from the next devices along the dim
/// (GSPMD 4.3); of a slice or a padding any that hold them, because the parts of the two tensors do not begin alike. Where the map
/// reshapes, both the shapes and the splits differ; axes of `to` alone choose among what the device holds.
struct movement {
  extents from_global, to_global;
  sharding from, to;
  axis_mask axes = 0;
  const index_map* map = nullptr;                     // null: every element keeps its index
  inline_vec<std::int8_t, max_rank> from_order = {};  // of a movement without a map: how the operand lies (local_value)
  bool is_mapped = false;  // has a map: for GCC with -fsanitize=undefined whether an address is null is no constant
  collective_origin origin{};
  std::uint32_t number = 0;  // 0: not yet numbered (meeting_subject.hpp)

  constexpr movement() = default;
  constexpr movement(const extents& global, const sharding& from_, const sharding& to_, axis_mask over,
                     const collective_origin& asked = {})
      : from_global(global), to_global(global), from(from_), to(to_), axes(over), origin(asked) {}
  /// `by` outlives the movement.
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

/// Values that are partial over (at least) `axes` are reduced inside the groups over `axes`. `to` splits what `from`
/// splits (all_reduce), or splits it further (reduce_scatter): its box lies inside the box of `from`, which all members
/// share.
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

/// How the splits of one dim differ, axes of size 1 aside: the axes that both lists begin with, and what follows.
struct split_change {
  int dim = 0;
  std::int64_t common_parts = 1;            // cut by the axes that both begin with
  std::int64_t from_rest = 1, to_rest = 1;  // cut further by the others
  axis_mask common_axes = 0;
  axis_mask from_axes = 0, to_axes = 0;  // the others

  /// Neither list continues the other one: parts trade places.
  [[nodiscard]] constexpr bool is_reordered() const { return from_axes != 0 && to_axes != 0; }
  /// So few parts hold data that other axes, or another order of them, bring no device what it has not.
  [[nodiscard]] constexpr bool keeps_tiles(const mesh_shape& mesh, const sharding& from, const sharding& to,
                                           const extents& global) const {
    if ((from_axes & ~to_axes) != 0) return false;
    const auto extent = global.items[dim];
    const auto parts = common_parts * to_rest;
    const auto step = shard_extent(extent, parts);
    if (step * (parts - 1) < extent)
      return false;  // all parts hold data, so that all axes tell, and they are not those of `from`
    const auto separating = separating_axes(mesh, to, dim, extent);
    if (separating.begin != separating.end && step != shard_extent(extent, common_parts * from_rest)) return false;
    return separating.names_same_axes(mesh, separating_axes(mesh, from, dim, extent));
  }
};

/// The change of `dim`, to whose splits `f` and `t` point in `from` and `to`: they go on to what follows.
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

/// True when the parts of the common axes begin and end at the same places on both sides. Rounding up may spoil that:
///   9 over 2 is 5,4; 9 over 2x2 is 3,3,3,0: the second pair begins at 6, not at 5  -> false
///   8 over 2 is 4,4; 8 over 2x2 is 2,2,2,2                                         -> true
constexpr bool nests(const split_change& change, std::int64_t global_extent) {
  const auto from = change.from_rest * shard_extent(global_extent, change.common_parts * change.from_rest);
  const auto to = change.to_rest * shard_extent(global_extent, change.common_parts * change.to_rest);
  return from == to || (from >= global_extent && to >= global_extent);
}

/// Applies `visit` to the change of every dim whose splits differ.
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

/// The most movements, or reductions, that go in the same messages.
inline constexpr int most_moved_together = 16;

/// The axes inside whose groups a movement finds all its data: on each dim whose split changes, the axes of `from` past
/// those that both sides begin with; all axes of `from` on that dim where rounding shifts the boundaries. Axes of size 1
/// never matter. The result is 0 when every device holds already what it needs.
constexpr axis_mask movement_axes(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  axis_mask axes = 0, left = 0, taken = 0;
  for_each_split_dim(mesh, from, to, [&](const split_change& change) {
    left |= change.from_axes;
    taken |= change.to_axes;
    if (change.keeps_tiles(mesh, from, to, global)) return;
    axes |= change.from_axes;
    if (change.common_axes != 0 && !nests(change, global.items[change.dim])) axes |= change.common_axes;
  });
  if (axes != 0 && left != taken) return elements(global) == 0 ? 0 : axes;  // the tiles cannot be the same
  if (axes != 0 && same_tiles(mesh, global, from, to)) return 0;
  return axes;
}

/// True when the box of every device under `to` lies inside its box under `from`, as a reduction and a local slice need it.
constexpr bool lies_inside(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  return movement_axes(mesh, global, from, to) == 0;
}

/// The name of what a movement over at least one axis does:
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

/// How many indices of one dim a device may lack at most of the `to_extent` it is to hold, where neither list of axes reorders
/// the other. Where rounding shifts the boundaries, the last ones of a group are shifted most.
constexpr std::int64_t lacking(const split_change& change, std::int64_t global_extent) {
  const auto from = shard_extent(global_extent, change.common_parts * change.from_rest);
  const auto to = shard_extent(global_extent, change.common_parts * change.to_rest);
  const auto less = [](std::int64_t a, std::int64_t b) { return a < b ? a : b; };
  if (change.from_axes == 0) {
    //   from |----a----|----a----|--      the box of the last device of group t-1 ends t * shift behind its old one, and
    //   to   |--b--|--b--|--b--|--        what is there of the tensor ends E - t * a behind it
    const auto shift = change.to_rest * to - from;
    if (shift == 0 || nests(change, global_extent)) return 0;
    const auto at = [&](std::int64_t t) { return less(less(to, t * shift), global_extent - t * from); };
    const auto top = global_extent / (from + shift);  // where one falls below the other
    std::int64_t most = 0;
    for (auto t = top; t <= top + 1; ++t)
      if (t >= 1 && t < change.common_parts && at(t) > most) most = at(t);
    return most;
  }
  //   from |--a--|--a--|--a--|--       the last device of a group begins latest
  //   to   |----b----|----b----|--
  const auto shift = change.from_rest * from - to;
  const auto groups = (global_extent + to - 1) / to;  // that get anything
  const auto at = [&](std::int64_t group) {
    const auto wanted = less(to, global_extent - group * to);
    const auto held = wanted - group * shift - (change.from_rest - 1) * from;
    return wanted - (held < 0 ? 0 : held);
  };
  const auto last = at(groups - 1);
  return groups >= 2 && at(groups - 2) > last ? at(groups - 2) : last;
}

/// Returns how many of the `elems` elements of a device's new box it held before, where one dim is split anew.
constexpr std::int64_t kept(std::int64_t elems, const split_change& change, std::int64_t global_extent) {
  if (change.is_reordered()) return 0;
  const auto extent = shard_extent(global_extent, change.common_parts * change.to_rest);
  return elems / extent * (extent - lacking(change, global_extent));
}

/// Returns the bytes that a device receives at most: its box under `to` less what it held before. In the plain cases, with n devices in a
/// group: (n-1) shards for all_gather, (n-1)/n of the shard for all_to_all, the shard for a permutation. Devices send as much where next_step
/// chose the movement and shards are even; of an uneven dim that moves to another one, a full shard sends more than anybody receives:
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
  if (gathers) return (padded_elems - shard_elems) * bytes_per_elem;  // whole shards travel, with their padding
  return (box_elems - kept_elems) * bytes_per_elem;
}

/// Returns the bytes that one of n devices in a group sends: 2(n-1)/n of the buffer for all_reduce (the ring algorithm), (n-1) result
/// shards for reduce_scatter.
constexpr std::int64_t bytes_sent(const mesh_shape& mesh, const reduction& r, std::int64_t bytes_per_elem) {
  const auto n = mesh.size_of(r.axes);
  const auto result_bytes = local_elements(mesh, r.global, r.to) * bytes_per_elem;
  if (classify(mesh, r) == collective_kind::reduce_scatter) return (n - 1) * result_bytes;
  return 2 * result_bytes - 2 * result_bytes / n;  // 2(n-1)/n of it, rounded up
}

}  // namespace gspmd::detail
