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

constexpr std::int64_t cost_of_move(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  const auto axes = movement_axes(mesh, global, from, to);
  return axes == 0 ? 0 : bytes_sent(mesh, movement{global, from, to, axes}, 1);
}

/// Looks for a way to reduce that sends less than the best one known, where shards have padding and no formula tells. Goes
/// through
///   a reduce_scatter into any shards inside of those before it, over any axes; another one; ...; or an all_reduce of the rest
///   before each of them, perhaps, a movement of what is still partial into tiles with less padding
///   one movement
/// and leaves out movements into larger tiles than what there is and what is wanted (N7), and what must send more than the best
/// way so far. After `most_looked_at` shardings the best one so far is taken: on eight devices most pairs need less than 32,
/// and large meshes cannot make planning slow.
///
///   5 over 2x2 devices, partial over both axes, into {xy}:  one reduce_scatter of 3 parts of 2 sends 6, one over x and then
///   one over y send 3 + 2
class reduction_search {
 public:
  static constexpr int most_looked_at = 1024;

  constexpr reduction_search(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                             path_cost least, const reshard_step& best)
      : mesh_(mesh), global_(global), from_(from), to_(to), least_(least), best_(best) {
    for (int axis = 0; axis < mesh.axis_count(); ++axis)
      if (mesh.sizes[axis] > 1) axes_ |= axis_bit(axis);
    wanted_elems_ = elements(local_extents(mesh, global, to));
  }

  /// The first step of the best way. A move may have to be made in several steps, and its `axes` are not given.
  constexpr reshard_step run() {
    const axis_mask pending = from_.partial & ~to_.partial;
    for (const bool moves : {false, true}) {  // the plain ways first: what they send leaves out most of the others
      moves_ = moves;
      reduce(from_, pending, {}, {});
    }
    return best_;
  }

 private:
  [[nodiscard]] constexpr axis_mask unused(const sharding& s) const { return axes_ & ~(s.split_axes() | s.partial); }

  /// True if there is no use in reducing over `pending` shards of `elems` elements that can be cut by `parts` more: however it
  /// is done, a device receives at least n - 1 times the share that it ends up with.
  [[nodiscard]] constexpr bool is_hopeless(path_cost cost, std::int64_t elems, std::int64_t parts, axis_mask pending) const {
    const auto reduced = (elems + parts - 1) / parts;  // that a device ends up with at least
    cost.add(((mesh_.size_of(pending) - 1) * elems + parts - 1) / parts);
    cost.add(wanted_elems_ > reduced ? wanted_elems_ - reduced : 0);
    if (wanted_elems_ <= elems && wanted_elems_ > reduced) --cost.messages;  // perhaps it need not be cut so far
    return !cost.is_less_than(least_);
  }

  /// Reduces `s` over `pending`, in all ways. `first`: the step that was taken to `s`, if any.
  constexpr void reduce(const sharding& s, axis_mask pending, const path_cost& cost, const reshard_step& first) {
    cut(s, s, unused(s) | pending, pending, cost, first, 0);
    if (!moves_ || (first.what == reshard_step::kind::move && first.to.splits == s.splits)) return;
    sharding tiles = s;
    tiles.splits.clear();
    move_to(s, tiles, pending, cost, first, 0);
  }
  /// `fine` continues `s`, and may be continued by `free` on dims from `dim` on.
  constexpr void cut(const sharding& s, const sharding& fine, axis_mask free, axis_mask pending, const path_cost& cost,
                     const reshard_step& first, int dim) {
    const auto elems = elements(local_extents(mesh_, global_, fine));
    if (is_hopeless(cost, elems, mesh_.size_of(free), pending)) return;
    if (++looked_at_ > most_looked_at) return;
    if (lies_inside(mesh_, global_, s, fine)) arrive(s, fine, pending, cost, first);
    for (; dim < global_.count; ++dim)
      for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
        if ((free & axis_bit(axis)) == 0) continue;
        sharding finer = fine;
        finer.add_split(axis, dim);
        if (elements(local_extents(mesh_, global_, finer)) < elems)
          cut(s, finer, free & ~axis_bit(axis), pending, cost, first, dim);
      }
  }
  /// Reduces `s` into `fine`: over the axes that do cut it, or by all_reduce if none does. Then goes on from there.
  constexpr void arrive(const sharding& s, const sharding& fine, axis_mask pending, const path_cost& cost,
                        const reshard_step& first) {
    const axis_mask scattered = fine.split_axes() & pending;
    if (scattered != 0) return arrive_over(scattered, s, fine, pending, cost, first);
    sharding start = s;
    start.splits = fine.splits;
    const bool is_sliced = first.what == reshard_step::kind::none && !(s.splits == fine.splits);
    for (axis_mask over = pending; over != 0; over = moves_ ? (over - 1) & pending : 0)
      arrive_over(over, start, fine, pending, cost, is_sliced ? reshard_step{reshard_step::kind::slice, start, 0} : first);
  }
  constexpr void arrive_over(axis_mask over, const sharding& s, const sharding& fine, axis_mask pending, path_cost cost,
                             const reshard_step& before) {
    reshard_step first = before;
    sharding then = fine;
    then.partial = s.partial & ~over;
    if (first.what == reshard_step::kind::none) first = {reshard_step::kind::reduce, then, over};
    cost.add(bytes_sent(mesh_, reduction{global_, s, then, over, s.kind}, 1));
    if (over != pending) {
      reduce(then, pending & ~over, cost, first);
    } else if (cost.is_less_than(least_)) {
      cost.add(cost_of_move(mesh_, global_, then, to_));
      if (!cost.is_less_than(least_)) return;
      least_ = cost;
      best_ = first;
    }
  }
  /// Moves `s` to `tiles`, and to all continuations of it on dims from `dim` on, before it is reduced.
  constexpr void move_to(const sharding& s, const sharding& tiles, axis_mask pending, path_cost cost, const reshard_step& first,
                         int dim) {
    const auto elems = elements(local_extents(mesh_, global_, tiles));
    const axis_mask free = unused(tiles);
    path_cost at_least = cost;
    at_least.add(1);
    if (is_hopeless(at_least, elems, mesh_.size_of(free | pending), pending)) return;
    if (++looked_at_ > most_looked_at) return;
    for (; dim < global_.count; ++dim)
      for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
        if ((free & axis_bit(axis)) == 0) continue;
        sharding finer = tiles;
        finer.add_split(axis, dim);
        if (elements(local_extents(mesh_, global_, finer)) < elems) move_to(s, finer, pending, cost, first, dim);
      }
    if (elems > wanted_elems_ && elems > elements(local_extents(mesh_, global_, s))) return;  // N7
    const auto sent = cost_of_move(mesh_, global_, s, tiles);
    if (sent == 0) return;
    cost.add(sent);
    reduce(tiles, pending, cost,
           first.what != reshard_step::kind::none ? first : reshard_step{reshard_step::kind::move, tiles, 0});
  }

  const mesh_shape& mesh_;
  const extents& global_;
  const sharding& from_;
  const sharding& to_;
  path_cost least_;
  reshard_step best_;
  axis_mask axes_ = 0;
  std::int64_t wanted_elems_ = 0;
  bool moves_ = false;
  int looked_at_ = 0;
};

}  // namespace gspmd::detail
