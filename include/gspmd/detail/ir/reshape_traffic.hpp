// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/map_traffic.hpp"
#include "gspmd/detail/ir/reshape_map.hpp"

/// The traffic of a reshape of a sharded tensor. Axes are related if they split dims and one of these dims becomes a
/// part of the other. Each set of related axes is evaluated device by device. The traffic is the product over these
/// sets.
namespace gspmd::detail {

/// The most devices along a set of related axes, and the most pairs of boxes, for a movement. Larger reshapes use no
/// movement. Clang plans a reshape over 2048 devices in one evaluation if shards are ranges of one number. Boxes take
/// ten times as long.
inline constexpr std::int64_t most_reshape_devices = 2048;
inline constexpr std::int64_t most_reshape_devices_with_boxes = 256;
inline constexpr std::int64_t most_reshape_turns = 81;

/// The traffic of the devices along a set of related axes.
struct axes_traffic {
  part_shares sent, received, targets, sources;
};

/// Computes the exchange of a reshape between these two shardings.
class reshape_exchange {
 public:
  constexpr reshape_exchange(const mesh_shape& mesh, const extents& from_global, const sharding& from, const extents& to_global,
                             const sharding& to)
      : mesh_(mesh),
        from_global_(from_global),
        to_global_(to_global),
        from_(from),
        to_(to),
        digits_(digits_of(mesh, from_global, from, to_global, to)) {
    if (!digits_.exist) return;
    for (const auto& s : {side_of(false), side_of(true)})
      for (int d = 0; d < s.global.count; ++d) join(s.layout.axes_of(d));
    for (const auto& f : digits_.from)
      for (const auto& t : digits_.to)
        if (f.begin < t.end && t.begin < f.end) join(from_.axes_of(f.dim) | to_.axes_of(t.dim));
  }

  /// Returns true if one movement can do the reshape and its cost can be computed.
  [[nodiscard]] constexpr bool is_possible() const {
    if (!digits_.exist || pieces_of(digits_.from) * pieces_of(digits_.to) > most_reshape_turns) return false;
    for (const auto axes : sets_)
      if (mesh_.size_of(axes) > (are_ranges(axes) ? most_reshape_devices : most_reshape_devices_with_boxes) && !is_alike(axes))
        return false;
    return true;
  }

  [[nodiscard]] constexpr map_traffic traffic() const {
    map_traffic result;
    if (!digits_.exist) return result;
    axes_traffic all;
    for (auto* shares : {&all.sent, &all.received, &all.targets, &all.sources}) shares->add({1, 1});
    std::int64_t elems = 1;  // of the digits that no axis splits
    for (int d = 0; d < digits_.sizes.count; ++d) {
      bool is_named = false;
      for (const auto* ranges : {&digits_.from, &digits_.to})
        for (const auto& r : *ranges) is_named = is_named || (r.begin <= d && d < r.end);
      if (!is_named) elems *= digits_.sizes[d];
    }
    for (const auto axes : sets_) {
      axis_mask moved = 0;
      axes_traffic part;
      if (is_alike(axes)) keep_along(axes, part);
      else if (are_ranges(axes)) exchange_ranges_along(axes, part, moved);
      else exchange_along(axes, part, moved);
      if (part.received.leaves() > 0) result.axes |= moved;
      all.sent = all.sent.times(part.sent);
      all.received = all.received.times(part.received);
      all.targets = all.targets.times(part.targets);
      all.sources = all.sources.times(part.sources);
    }
    if (all.received.leaves() == 0) return {};
    result.sent = elems * all.sent.leaves();
    result.received = elems * all.received.leaves();
    result.messages = all.targets.leaves() > all.sources.leaves() ? all.targets.leaves() : all.sources.leaves();
    return result;
  }

 private:
  struct side {
    const extents& global;
    const sharding& layout;
    const digit_ranges& ranges;
  };
  [[nodiscard]] constexpr side side_of(bool is_result) const {
    return is_result ? side{to_global_, to_, digits_.to} : side{from_global_, from_, digits_.from};
  }

  /// Joins all sets that contain any of these axes.
  constexpr void join(axis_mask axes) {
    axes &= mesh_.wide_axes();
    if (axes == 0) return;
    int kept = 0;
    for (const auto set : sets_)
      if ((set & axes) != 0) axes |= set;
      else sets_[kept++] = set;
    while (sets_.count > kept) sets_.pop_back();
    sets_.push_back(axes);
  }
  [[nodiscard]] static constexpr digit_ranges within(const side& s, axis_mask axes) {
    digit_ranges mine;
    for (const auto& r : s.ranges)
      if ((s.layout.axes_of(r.dim) & axes) != 0) mine.push_back(r);
    return mine;
  }

  /// Returns true if the axes cut both tensors at the same elements.
  [[nodiscard]] constexpr bool is_alike(axis_mask axes) const {
    const auto from = within(side_of(false), axes), to = within(side_of(true), axes);
    if (from.count != 1 || to.count != 1) return false;
    const auto &a = from[0], &b = to[0];
    if (a.begin != b.begin || a.end != b.end || a.unit != b.unit || a.parts != b.parts) return false;
    inline_vec<std::int8_t, max_axes> order;
    for (const auto& use : from_.splits)
      if ((axes & axis_bit(use.axis)) != 0) {
        if (use.dim != a.dim) return false;
        order.push_back(use.axis);
      }
    int next = 0;
    for (const auto& use : to_.splits)
      if ((axes & axis_bit(use.axis)) != 0 && (use.dim != b.dim || next == order.count || order[next++] != use.axis))
        return false;
    return next == order.count;
  }
  constexpr void keep_along(axis_mask axes, axes_traffic& part) const {
    const auto range = within(side_of(false), axes)[0];
    const auto elems = shard_extent(from_global_[range.dim], range.parts) * range.unit;
    for (auto* shares : {&part.sent, &part.received}) shares->add({elems, elems});
    for (auto* shares : {&part.targets, &part.sources}) shares->add({1, 1});
  }

  /// Returns true if the shards of both tensors along these axes are ranges of the same digits.
  [[nodiscard]] constexpr bool are_ranges(axis_mask axes) const {
    for (const auto& s : {side_of(false), side_of(true)})
      for (const auto& use : s.layout.splits)
        if ((axes & axis_bit(use.axis)) != 0 && s.global[use.dim] == 1) return false;
    const auto from = within(side_of(false), axes), to = within(side_of(true), axes);
    return from.count == 1 && to.count == 1 && from[0].begin == to[0].begin && from[0].end == to[0].end;
  }
  /// Computes exchange_along in closed form, for axes along which the shards of both tensors are ranges.
  constexpr void exchange_ranges_along(axis_mask axes, axes_traffic& part, axis_mask& moved) const {
    const auto from = within(side_of(false), axes)[0], to = within(side_of(true), axes)[0];
    const auto from_extent = from_global_[from.dim], to_extent = to_global_[to.dim];
    const auto from_shard = shard_extent(from_extent, from.parts) * from.unit,
               to_shard = shard_extent(to_extent, to.parts) * to.unit;
    const auto devices = mesh_.size_of(axes);
    coordinates at(mesh_.axis_count(), 0);
    for (std::int64_t k = 0; k < devices; ++k) {
      at = group_member(mesh_, axes, at, k);
      const auto own = part_index(mesh_, from_, from.dim, at);
      const auto held = part_range(from_extent, from.parts, own);
      const auto wanted = part_range(to_extent, to.parts, part_index(mesh_, to_, to.dim, at));
      const index_range has{held.begin * from.unit, held.end * from.unit}, needs{wanted.begin * to.unit, wanted.end * to.unit};
      const auto kept = intersect(has, needs).size();
      const auto stays = std::int64_t{kept > 0};
      part.sent.add({has.size(), kept});
      part.received.add({needs.size(), kept});
      if (has.size() > 0) part.targets.add({(has.end - 1) / to_shard - has.begin / to_shard + 1, stays});
      if (needs.size() == 0) continue;
      const index_range around{needs.begin / from_shard, (needs.end - 1) / from_shard + 1};
      part.sources.add({around.size(), stays});
      if (around.begin != own || around.size() > 1) note_axes(from.dim, around, own, moved);
    }
  }

  /// Adds the shares of all devices along these axes. Adds to `moved` the axes whose groups exchange elements.
  constexpr void exchange_along(axis_mask axes, axes_traffic& part, axis_mask& moved) const {
    const auto from_ranges = within(side_of(false), axes), to_ranges = within(side_of(true), axes);
    const side from{from_global_, from_, from_ranges}, to{to_global_, to_, to_ranges};
    auto whole = digits_.whole();
    for (int d = 0; d < whole.rank; ++d) {
      bool is_mine = false;
      for (const auto* ranges : {&from.ranges, &to.ranges})
        for (const auto& r : *ranges) is_mine = is_mine || (r.begin <= d && d < r.end);
      if (!is_mine) whole.end[d] = 1;
    }
    const auto devices = mesh_.size_of(axes);
    for (std::int64_t k = 0; k < devices; ++k) {
      const auto at = group_member(mesh_, axes, coordinates(mesh_.axis_count(), 0), k);
      part_share gives{0, 0}, gets{0, 0}, goes_to{0, 0}, comes_from{0, 0};
      const auto held = shard_of(from, at, whole, gives.all), wanted = shard_of(to, at, whole, gets.all);
      for (const auto& t : wanted)
        for (const auto& f : held) gets.own += common(f, t);
      gives.own = gets.own;
      goes_to.all = peers_around(to, held);
      comes_from.all = peers_around(from, wanted);
      goes_to.own = comes_from.own = gets.own > 0 ? 1 : 0;
      if (gets.all > gets.own) note_axes(from, wanted, at, axes, moved);
      part.sent.add(gives);
      part.received.add(gets);
      part.targets.add(goes_to);
      part.sources.add(comes_from);
    }
  }
  /// Returns the nonempty boxes of a device's shard.
  [[nodiscard]] constexpr vec<digit_box> shard_of(const side& s, const coordinates& at, const digit_box& whole,
                                                  std::int64_t& elems) const {
    vec<digit_box> boxes;
    if (is_beside_unit_dims(s.global, s.layout, at)) return boxes;
    for (std::int64_t k = 0; k < pieces_of(s.ranges); ++k) {
      auto box = whole;
      cut_to_shard(mesh_, digits_, s.ranges, s.global, s.layout, at, k, box);
      const auto n = box.elems();
      if (n > 0) boxes.push_back(box);
      elems += n;
    }
    return boxes;
  }
  [[nodiscard]] static constexpr std::int64_t common(const digit_box& a, const digit_box& b) {
    std::int64_t n = 1;
    for (int d = 0; d < a.rank && n > 0; ++d)
      n *= intersect(index_range{a.begin[d], a.end[d]}, index_range{b.begin[d], b.end[d]}).size();
    return n;
  }
  [[nodiscard]] constexpr index_range parts_around_all(const digit_range& r, const extents& global,
                                                       const vec<digit_box>& boxes) const {
    index_range all{r.parts, 0};
    for (const auto& box : boxes) {
      const auto here = parts_around(digits_, r, global, box);
      all = {here.begin < all.begin ? here.begin : all.begin, here.end > all.end ? here.end : all.end};
    }
    return all;
  }
  /// Returns an upper bound of the number of parts of a tensor that contain elements of the boxes.
  [[nodiscard]] constexpr std::int64_t peers_around(const side& s, const vec<digit_box>& boxes) const {
    if (boxes.empty()) return 0;
    std::int64_t n = 1;
    for (const auto& r : s.ranges) n *= parts_around_all(r, s.global, boxes).size();
    return n;
  }
  constexpr void note_axes(const side& from, const vec<digit_box>& wanted, const coordinates& at, axis_mask axes,
                           axis_mask& moved) const {
    for (const auto& use : from_.splits)
      if (from_global_[use.dim] == 1 && (axes & axis_bit(use.axis)) != 0 && at[use.axis] != 0) moved |= axis_bit(use.axis);
    for (const auto& r : from.ranges)
      note_axes(r.dim, parts_around_all(r, from.global, wanted), part_index(mesh_, from_, r.dim, at), moved);
    moved &= mesh_.wide_axes();
  }
  /// Adds the axes along which other devices than those of part `own` hold the parts `around` of a dim of the operand.
  constexpr void note_axes(int dim, index_range around, std::int64_t own, axis_mask& moved) const {
    std::int64_t parts = 1;  // minor to the axis
    for (int i = from_.splits.count; i-- > 0;) {
      const auto& use = from_.splits[i];
      if (use.dim != dim) continue;
      if (around.begin / parts != own / parts || (around.end - 1) / parts != own / parts) moved |= axis_bit(use.axis);
      parts *= mesh_.sizes[use.axis];
    }
  }

  const mesh_shape& mesh_;
  const extents& from_global_;
  const extents& to_global_;
  const sharding& from_;
  const sharding& to_;
  reshape_digits digits_;
  inline_vec<axis_mask, max_axes> sets_;
};

/// Returns the traffic of any map. An affine map requires equal splits of both tensors.
constexpr map_traffic traffic_of(const mesh_shape& mesh, const extents& from_global, const sharding& from,
                                 const extents& to_global, const sharding& to, const index_map& map) {
  return map.reshapes ? reshape_exchange(mesh, from_global, from, to_global, to).traffic()
                      : traffic_of(mesh, from_global, to_global, to, map);
}

}  // namespace gspmd::detail
