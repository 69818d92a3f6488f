// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/passes/reshard.hpp"

namespace gspmd::detail {

/// Looks for a way to reduce that sends less than the best one known, where shards have padding and no formula tells. Goes
/// through
///   a reduce_scatter into any shards inside of those before it, over any axes; another one; ...; or an all_reduce of the rest
///   before each of them, perhaps, a movement of what is still partial into tiles with less padding
///   one movement
/// and leaves out movements into larger tiles than what there is and what is wanted (N7), and what must send more than the best
/// way so far. After `most_looked_at` shardings the best one so far is taken: rank 3 on eight devices never needs as many. Large
/// meshes must not make planning slow: there, fewer are looked at, and only for what saves an eighth.
///
///   5 over 2x2 devices, partial over both axes, into {xy}:  one reduce_scatter of 3 parts of 2 sends 6, one over x and then
///   one over y send 3 + 2
class reduction_search {
 public:
  static constexpr std::int64_t exhaustive_up_to = 16;  // devices
  static constexpr int most_looked_at = 128;
  static constexpr int most_looked_at_of_many = 256;

  constexpr reduction_search(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                             path_cost least)
      : mesh_(mesh), global_(global), from_(from), to_(to), least_(least) {
    from_.open = to_.open = 0;
    for (int axis = 0; axis < mesh.axis_count(); ++axis)
      if (mesh.sizes[axis] > 1) axes_ |= axis_bit(axis);
    wanted_elems_ = elements(local_extents(mesh, global, to));
    for (int d = 0; d < global.count; ++d) knows_lacked_ = knows_lacked_ && parts_of(mesh, to_, d) <= global[d];
    const auto held = elements(local_extents(mesh, global, from));
    most_elems_ = held > wanted_elems_ ? held : wanted_elems_;
  }

  constexpr void run() {
    is_exhaustive_ = mesh_.device_count() <= exhaustive_up_to;
    left_ = is_exhaustive_ ? most_looked_at : most_looked_at_of_many;
    for (const bool moves : {false, true}) {  // the plain ways first: what they send leaves out most of the others
      moves_ = moves;
      reduce(from_, from_.partial & ~to_.partial, {});
    }
  }
  /// The steps of the best way, but for the last movement; a move may have to be made in several steps, and its `axes` are not
  /// given. Empty if nothing was found that sends less.
  [[nodiscard]] constexpr const std::vector<reshard_step>& best() const { return best_; }
  [[nodiscard]] constexpr int looked_at() const { return (is_exhaustive_ ? most_looked_at : most_looked_at_of_many) - left_; }

 private:
  [[nodiscard]] constexpr axis_mask unused(const sharding& s) const { return axes_ & ~(s.split_axes() | s.partial); }

  /// True if there is no use in reducing over `pending` shards of `elems` elements that can be cut by `parts` more, when `moved`
  /// elements will have to be moved: however it is done, a device receives at least n - 1 times the share that it ends up with.
  [[nodiscard]] constexpr bool is_hopeless(std::int64_t sent, std::int64_t elems, std::int64_t parts, axis_mask pending,
                                           std::int64_t moved) {
    if (--left_ < 0) return true;
    const auto reduced = (elems + parts - 1) / parts;  // that a device ends up with at least
    sent += ((mesh_.size_of(pending) - 1) * elems + parts - 1) / parts;
    if (!is_exhaustive_) sent += sent / 8;
    return sent + moved >= least_.elems || sent + wanted_elems_ - reduced >= least_.elems;
  }

  /// At least so many elements have to be moved to get from `s` to the target.
  [[nodiscard]] constexpr std::int64_t still_lacked(const sharding& s) const {
    return knows_lacked_ ? elems_lacked(mesh_, global_, s, to_) : 0;
  }

  /// Reduces `s` over `pending`, in all ways.
  constexpr void reduce(const sharding& s, axis_mask pending, const path_cost& cost) {
    cut(s, s, unused(s) | pending, pending, cost, 0);
    if (!moves_ || (!steps_.empty() && steps_.back().what == reshard_step::kind::move)) return;
    sharding tiles = s;
    tiles.splits.clear();
    const auto to_be_moved = still_lacked(s);
    move_to(s, tiles, pending, cost, 0, to_be_moved > 0 ? to_be_moved : 1);
  }
  /// `fine` continues `s`, and may be continued by `free` on dims from `dim` on.
  constexpr void cut(const sharding& s, const sharding& fine, axis_mask free, axis_mask pending, const path_cost& cost, int dim) {
    const auto elems = elements(local_extents(mesh_, global_, fine));
    if (is_hopeless(cost.elems, elems, mesh_.size_of(free), pending, 0)) return;
    if (is_hopeless(cost.elems, elems, mesh_.size_of(free), pending, still_lacked(fine))) return;
    ++left_;
    if (lies_inside(mesh_, global_, s, fine)) arrive(s, fine, pending, cost);
    for (; dim < global_.count; ++dim)
      for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
        if ((free & axis_bit(axis)) == 0) continue;
        sharding finer = fine;
        finer.add_split(axis, dim);
        if (elements(local_extents(mesh_, global_, finer)) < elems) cut(s, finer, free & ~axis_bit(axis), pending, cost, dim);
      }
  }
  /// Reduces `s` into `fine`: over the axes that do cut it, or by all_reduce if none does. Then goes on from there.
  constexpr void arrive(const sharding& s, const sharding& fine, axis_mask pending, const path_cost& cost) {
    const axis_mask scattered = fine.split_axes() & pending;
    if (scattered != 0) return arrive_over(scattered, s, fine, pending, cost);
    sharding start = s;
    start.splits = fine.splits;
    const bool is_sliced = !(s.splits == fine.splits);
    if (is_sliced) steps_.push_back({reshard_step::kind::slice, start, 0});
    for (axis_mask over = pending; over != 0; over = moves_ ? (over - 1) & pending : 0)
      arrive_over(over, start, fine, pending, cost);
    if (is_sliced) steps_.pop_back();
  }
  constexpr void arrive_over(axis_mask over, const sharding& s, const sharding& fine, axis_mask pending, path_cost cost) {
    sharding then = fine;
    then.partial = s.partial & ~over;
    cost.add(bytes_sent(mesh_, reduction{global_, s, then, over, s.kind}, 1));
    if (over == pending && !cost.is_less_than(least_)) return;
    steps_.push_back({reshard_step::kind::reduce, then, over});
    if (over != pending) {
      reduce(then, pending & ~over, cost);
    } else {
      cost.add(cost_of_move(mesh_, global_, then, to_));
      if (cost.is_less_than(least_)) {
        least_ = cost;
        best_ = steps_;
      }
    }
    steps_.pop_back();
  }
  /// Moves `s` to `tiles`, and to all continuations of it on dims from `dim` on, before it is reduced.
  constexpr void move_to(const sharding& s, const sharding& tiles, axis_mask pending, path_cost cost, int dim,
                         std::int64_t to_be_moved) {
    const auto elems = elements(local_extents(mesh_, global_, tiles));
    const axis_mask free = unused(tiles);
    if (is_hopeless(cost.elems, elems, mesh_.size_of(free | pending), pending, to_be_moved)) return;
    for (; dim < global_.count; ++dim)
      for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
        if ((free & axis_bit(axis)) == 0) continue;
        sharding finer = tiles;
        finer.add_split(axis, dim);
        if (elements(local_extents(mesh_, global_, finer)) < elems) move_to(s, finer, pending, cost, dim, to_be_moved);
      }
    if (elems > most_elems_) return;  // N7
    const auto sent = cost_of_move(mesh_, global_, s, tiles);
    if (sent == 0) return;
    cost.add(sent);
    steps_.push_back({reshard_step::kind::move, tiles, 0});
    reduce(tiles, pending, cost);
    steps_.pop_back();
  }

  const mesh_shape& mesh_;
  const extents& global_;
  sharding from_;
  sharding to_;
  path_cost least_;
  std::vector<reshard_step> best_;
  std::vector<reshard_step> steps_;  // under way
  axis_mask axes_ = 0;
  std::int64_t wanted_elems_ = 0, most_elems_ = 0;  // at the end; N7
  bool moves_ = false;
  bool knows_lacked_ = true;  // not where axes of the target tell nothing apart
  bool is_exhaustive_ = true;
  int left_ = 0;  // shardings that may be looked at
};

/// The steps of a cheapest path from `from` to `to`.
constexpr std::vector<reshard_step> cheapest_path(const mesh_shape& mesh, const extents& global, sharding from,
                                                  const sharding& to, int* looked = nullptr) {
  std::vector<reshard_step> path;
  const auto walk = [&](const sharding& target) {
    for (auto step = next_step(mesh, global, from, target); step.what != reshard_step::kind::none;
         step = next_step(mesh, global, from, target)) {
      path.push_back(step);
      from = step.to;
    }
  };
  const sharding start = from;
  walk(to);
  if (mesh.size_of(start.partial & ~to.partial) == 1) return path;
  path_cost plain;
  const auto* at = &start;
  for (const auto& step : path) {
    plain.add(step_bytes(mesh, global, *at, step, 1));
    at = &step.to;
  }
  const sharding target = without_unit_splits(mesh, to);
  reduction_search search(mesh, global, without_unit_splits(mesh, start), target, plain);
  search.run(); if (looked != nullptr) *looked = search.looked_at();
  if (search.best().empty()) return path;
  path.clear();
  from = start;
  for (auto step : search.best()) {
    if (step.what == reshard_step::kind::move) {
      walk(step.to);
      continue;
    }
    if (step.to.splits == target.splits) step.to.splits = to.splits;
    path.push_back(step);
    from = step.to;
  }
  walk(to);
  return path;
}

}  // namespace gspmd::detail
