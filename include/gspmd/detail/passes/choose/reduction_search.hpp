// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gspmd/detail/passes/choose/reshard.hpp"

namespace gspmd::detail {

/// Looks for a way to reduce that sends less than the best one known, where shards have padding and no formula tells. Goes
/// through
///   a reduce_scatter into any shards inside of those before it, over any axes; another one; ...; or an all_reduce of the rest
///   before each of them, perhaps, a movement of what is still partial into tiles with less padding
///   one movement
/// and leaves out movements into larger tiles than what there is and what is wanted, and what must send as much as the best
/// way so far.
///
///   9x5 over 2x2x2 devices, partial over all axes, into {y,zx}:  one reduce_scatter of 8 parts of 5x2 sends 70, one over y
///   into 5x5 and then one over x and z into 5x2 send 25 + 30
///
/// This also runs in constant evaluation, whose steps compilers limit: each sharding that is looked at takes about a thousand.
/// So nothing is looked for longer than `may_look_at` says, and what was found by then is taken. On up to eight devices that is a
/// cheapest way (tests/unit/reshard_uneven.cpp).
class reduction_search {
 public:
  static constexpr int most_looked_at = 512;  // shardings, for one path

  constexpr reduction_search(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                             path_cost least)
      : mesh_(mesh), global_(global), from_(from), to_(to), least_(least) {
    from_.open = to_.open = 0;
    for (int axis = 0; axis < mesh.axis_count(); ++axis)
      if (mesh.sizes[axis] > 1) axes_ |= axis_bit(axis);
    wanted_elems_ = local_elements(mesh, global, to);
    for (int d = 0; d < global.count; ++d) knows_lacked_ = knows_lacked_ && parts_of(mesh, to_, d) <= global[d];
    const auto held = local_elements(mesh, global, from);
    most_elems_ = held > wanted_elems_ ? held : wanted_elems_;
  }

  /// Takes what it looks at from `may_look_at`.
  constexpr void run(int& may_look_at) {
    const int most = may_look_at < most_looked_at ? may_look_at : most_looked_at;
    left_ = most;
    parts_ = extents(global_.count, 1);
    for (const auto& use : from_.splits) parts_[use.dim] *= mesh_.sizes[use.axis];
    for (const bool moves : {false, true}) {  // the plain ways first: what they send leaves out most of the others
      moves_ = moves;
      reduce(from_, local_elements(mesh_, global_, from_), from_.partial & ~to_.partial, {}, !moves);
    }
    may_look_at -= most - (left_ < 0 ? 0 : left_);
  }
  /// The steps of the best way, but for the last movement; a move may have to be made in several steps, and its `axes` are not
  /// given. Empty if nothing was found that sends less.
  [[nodiscard]] constexpr const std::vector<reshard_step>& best() const { return best_; }
  /// What it sends; if nothing was found, what had to be beaten.
  [[nodiscard]] constexpr const path_cost& least() const { return least_; }

 private:
  /// True if there is no use in reducing shards of `elems` elements, which can be cut by `cuts` more, over `n` devices, when
  /// `moved` elements have to be moved at least: however it is done, a device receives n - 1 times the share that it ends up with.
  [[nodiscard]] constexpr bool is_hopeless(std::int64_t sent, std::int64_t elems, std::int64_t cuts, std::int64_t n,
                                           std::int64_t moved) const {
    const auto reduced = (elems + cuts - 1) / cuts;  // that a device ends up with at least
    sent += ((n - 1) * elems + cuts - 1) / cuts;
    if (wanted_elems_ - reduced > moved) moved = wanted_elems_ - reduced;
    return sent + moved >= least_.elems;
  }
  /// At least so many elements have to be moved to get from `s` to the target.
  [[nodiscard]] constexpr std::int64_t still_lacked(const sharding& s) const {
    return knows_lacked_ ? elems_lacked(mesh_, global_, s, to_) : 0;
  }
  /// True if the parts_ of a dim begin and end where those of `held` do, which they continue.
  [[nodiscard]] constexpr bool continues(const extents& held) const {
    for (int d = 0; d < global_.count; ++d) {
      if (parts_[d] == held[d]) continue;
      const auto from = shard_extent(global_[d], held[d]);
      const auto to = parts_[d] / held[d] * shard_extent(global_[d], parts_[d]);
      if (from != to && (from < global_[d] || to < global_[d])) return false;
    }
    return true;
  }

  /// What is to be reduced.
  struct way {
    const sharding& s;
    const extents& held;  // its parts
    axis_mask pending;
    std::int64_t n;  // devices along `pending`
    path_cost cost;  // so far
    bool is_new;     // a way that the first round did not go
  };
  /// Cuts shards of `elems` elements with parts_ by one more axis, on all dims from `dim` on, where that makes them smaller, or
  /// where a dim has no more elements than parts already: less may have to move then.
  template <class Visit>
  constexpr void for_each_finer(std::int64_t elems, axis_mask free, int dim, Visit visit) {
    for (; dim < global_.count; ++dim) {
      const auto parts = parts_[dim];
      const auto extent = shard_extent(global_[dim], parts);
      for (int axis = 0; axis < mesh_.axis_count(); ++axis) {
        if ((free & axis_bit(axis)) == 0) continue;
        parts_[dim] = parts * mesh_.sizes[axis];
        const auto finer = shard_extent(global_[dim], parts_[dim]);
        if (finer < extent) visit(axis, dim, elems / extent * finer);
        else if (extent == 1) visit(axis, dim, elems);
      }
      parts_[dim] = parts;
    }
  }
  /// Reduces `s`, which has parts_, over `pending`, in all ways.
  constexpr void reduce(const sharding& s, std::int64_t elems, axis_mask pending, const path_cost& cost, bool is_new) {
    const extents held = parts_;
    const axis_mask free = axes_ & ~(s.split_axes() | s.partial);
    const auto n = mesh_.size_of(pending);
    const auto cuts = mesh_.size_of(free) * n;
    const way w{s, held, pending, n, cost, is_new};
    const bool has_one = (pending & (pending - 1)) == 0;
    if (is_new || !has_one) cut(w, s, elems, free | pending, cuts, 0);
    if (!moves_ || (!steps_.empty() && steps_.back().what == reshard_step::kind::move)) return;
    sharding tiles = s;
    tiles.splits.clear();
    for (int d = 0; d < global_.count; ++d) parts_[d] = 1;
    const auto lacked = still_lacked(s);
    move_to(w, tiles, elements(global_), axes_ & ~s.partial, lacked > 0 ? lacked : 1, 0);
    parts_ = held;
  }
  /// `fine` continues the splits of w.s, has parts_, and may be continued by `free` on dims from `dim` on.
  constexpr void cut(const way& w, const sharding& fine, std::int64_t elems, axis_mask free, std::int64_t cuts, int dim) {
    const auto lacked = still_lacked(fine);
    if (is_hopeless(w.cost.elems, elems, cuts, w.n, 0) || --left_ < 0) return;
    if (continues(w.held) || lies_inside(mesh_, global_, w.s, fine)) arrive(w, fine, elems, lacked);
    for_each_finer(elems, free, dim, [&](int axis, int d, std::int64_t left) {
      if (is_hopeless(w.cost.elems, left, cuts / mesh_.sizes[axis], w.n, 0)) return;
      sharding finer = fine;
      finer.add_split(axis, d);
      cut(w, finer, left, free & ~axis_bit(axis), cuts / mesh_.sizes[axis], d);
    });
  }
  /// Reduces w.s into `fine`: over the axes that do cut it, or by all_reduce if none does. Then goes on from there.
  constexpr void arrive(const way& w, const sharding& fine, std::int64_t elems, std::int64_t lacked) {
    const axis_mask scattered = fine.split_axes() & w.pending;
    if (scattered != 0) return arrive_over(scattered, (mesh_.size_of(scattered) - 1) * elems, w, fine, elems, lacked);
    const bool is_sliced = !(w.s.splits == fine.splits);
    if (is_sliced) {
      steps_.push_back({reshard_step::kind::slice, fine, 0});
      steps_.back().to.partial = w.s.partial;
    }
    for (axis_mask over = w.pending; over != 0; over = moves_ ? (over - 1) & w.pending : 0)
      arrive_over(over, 2 * elems - 2 * elems / mesh_.size_of(over), w, fine, elems, lacked);
    if (is_sliced) steps_.pop_back();
  }
  constexpr void arrive_over(axis_mask over, std::int64_t sent, const way& w, const sharding& fine, std::int64_t elems,
                             std::int64_t lacked) {
    path_cost cost = w.cost;
    cost.add(sent);
    if (cost.elems + lacked >= least_.elems || (over == w.pending && !w.is_new)) return;
    sharding then = fine;
    then.partial = w.s.partial & ~over;
    steps_.push_back({reshard_step::kind::reduce, then, over});
    if (over != w.pending) {
      reduce(then, elems, w.pending & ~over, cost, w.is_new || (over & fine.split_axes()) == 0);
    } else {
      cost.add(cost_of_move(mesh_, global_, then, to_));
      if (cost.is_less_than(least_)) {
        least_ = cost;
        best_ = steps_;
      }
    }
    steps_.pop_back();
  }
  /// Moves w.s to `tiles`, which have parts_, and to all continuations of them on dims from `dim` on, before it is reduced.
  constexpr void move_to(const way& w, const sharding& tiles, std::int64_t elems, axis_mask free, std::int64_t moved, int dim) {
    if (is_hopeless(w.cost.elems, elems, mesh_.size_of(free | w.pending), w.n, moved) || --left_ < 0) return;
    for_each_finer(elems, free & ~w.pending, dim, [&](int axis, int d, std::int64_t left) {
      sharding finer = tiles;
      finer.add_split(axis, d);
      move_to(w, finer, left, free & ~axis_bit(axis), moved, d);
    });
    if (elems > most_elems_) return;  // no more memory than both ends take
    const auto least = w.cost.elems + elems_lacked(mesh_, global_, w.s, tiles);
    const auto free_cuts = mesh_.size_of(free | w.pending);
    if (is_hopeless(least, elems, free_cuts, w.n, 0)) return;
    path_cost cost = w.cost;
    cost.add(cost_of_move(mesh_, global_, w.s, tiles));
    if (cost.elems == w.cost.elems) return;
    steps_.push_back({reshard_step::kind::move, tiles, 0});
    reduce(tiles, elems, w.pending, cost, true);
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
  extents parts_;                                   // of the sharding that is looked at, by dim
  std::int64_t wanted_elems_ = 0, most_elems_ = 0;  // at the end; no tile on the way is larger than both ends'
  bool moves_ = false;
  bool knows_lacked_ = true;  // not where axes of the target tell nothing apart
  int left_ = 0;              // shardings that may be looked at
};

/// False where the plain way is a cheapest one: without a reduction, and if shards have no padding however they are split.
constexpr bool may_beat_plain_way(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to) {
  if (mesh.size_of(from.partial & ~to.partial) == 1) return false;
  const auto devices = mesh.device_count();
  for (int d = 0; d < global.count; ++d)
    if (global.items[d] % devices != 0) return true;
  return false;
}

/// What a cheapest path sends, if that is less than `least`; otherwise `least`.
constexpr path_cost cost_below(const mesh_shape& mesh, const extents& global, const sharding& from, const sharding& to,
                               const path_cost& least, int& may_look_at) {
  const sharding target = without_unit_splits(mesh, to);
  reduction_search search(mesh, global, without_unit_splits(mesh, from), target, least);
  search.run(may_look_at);
  return search.least();
}

/// The steps of a cheapest path from `from` to `to`, for which no more shardings are looked at than `may_look_at`, which is
/// reduced by those that were. It never sends more than reshard_bytes says.
constexpr std::vector<reshard_step> cheapest_path(const mesh_shape& mesh, const extents& global, sharding from,
                                                  const sharding& to, int& may_look_at) {
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
  if (!may_beat_plain_way(mesh, global, start, to)) return path;

  path_cost plain;
  const auto* at = &start;
  for (const auto& step : path) {
    plain.add(step_bytes(mesh, global, *at, step, 1));
    at = &step.to;
  }
  const sharding target = without_unit_splits(mesh, to);
  reduction_search search(mesh, global, without_unit_splits(mesh, start), target, plain);
  search.run(may_look_at);
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
