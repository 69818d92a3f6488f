// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/reshape_boxes.hpp"

/// The boxes that a movement copies. If the movement has a map, both sides count boxes in steps of the map
/// (index_map.hpp). Then the elements that a member holds and a device needs are again the intersection of two boxes.
/// `place` computes the strides.
///
///   x of 9 in 3,3,3; slice from 1 by 2, of 4 in 2,2,0: step t is 1 + 2t of x and t of the result
///     the second device needs steps 2,3; the members hold 0 | 1,2 | 3: element 5 from the second, 7 from the third
namespace gspmd::detail {

/// Returns the number of turns of a movement, at least 1. In each turn, a device copies at most one box from each
/// member. The functions below describe one turn. A movement that copies nothing has one turn, which fills the
/// result.
inline std::int64_t turns_of(const mesh_shape& mesh, const movement& m) {
  if (m.map != nullptr && m.map->reshapes) return reshape_turns(mesh, m);
  const auto turns = m.map == nullptr ? 1 : count_turns(*m.map, m.from_global, m.to_global);
  return turns > 0 ? turns : 1;
}

/// A turn of a movement with margins (halo buffers).
struct margin_turn {
  bool is_low;
  std::int64_t turn;  // of the operand (index_map.hpp)
};
inline margin_turn margin_turn_of(const movement& m, std::int64_t number) {
  const auto extent = m.from_global[m.map->dims[0].dim];
  const auto low = margin_turns(*m.map, extent, true);
  if (number < low.size()) return {true, low.begin + number};
  return {false, margin_turns(*m.map, extent, false).begin + number - low.size()};
}

/// Returns the margin of a shard that a turn copies to. Calls `fill(box, bits)` for the part of the margin outside of
/// the tensor, if this part is a constant.
///
///   x of 9 in 3,3,3; margins 1, 1: of the second shard, the low margin holds [2, 3), the high margin [6, 7)
template <class Fill>
inline buffer_layout margin_of(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t number, Fill fill) {
  auto target = layout_of(mesh, m.from_global, m.from, at);
  if (!target.held.any()) return target;
  const auto which = margin_turn_of(m, number);
  const auto& map = m.map->dims[which.is_low ? 0 : 1];
  const int d = map.dim;
  auto& begin = target.held.begin[d];
  auto& end = target.held.end[d];
  target.local[d] = m.map->low + m.map->high;
  target.first[d] = m.map->low - (which.is_low ? begin : end);
  const index_range margin = which.is_low ? index_range{begin - m.map->low, begin} : index_range{end, end + m.map->high};
  begin = margin.begin;
  end = margin.end;
  if (map.beyond != continuation::none) return target;
  const auto inside = intersect(margin, index_range{0, m.from_global[d]});
  for (const auto& outside : {index_range{margin.begin, inside.size() > 0 ? inside.begin : margin.end},
                              index_range{inside.size() > 0 ? inside.end : margin.end, margin.end}}) {
    begin = outside.begin;
    end = outside.end;
    if (begin < end) fill(place(target.held, packed(target.held), target), which.is_low ? m.map->fill : m.map->high_fill);
  }
  begin = inside.begin;
  end = inside.end;
  return target;
}

/// Sets the shard of a movement's result to its tile, in the dims whose map has a tile.
inline void hold_tiles(const mesh_shape& mesh, const movement& m, const coordinates& at, buffer_layout& target) {
  for (const auto& map : m.map->dims) {
    if (!map.is_tile()) continue;
    const auto parts = parts_of(mesh, m.to, map.dim);
    const auto part = part_index(mesh, m.to, map.dim, at);
    const auto held = map.tile.held(parts, part);
    target.held.begin[map.dim] = held.begin;
    target.held.end[map.dim] = held.end;
    target.first[map.dim] = -map.tile.room(parts, part).begin;
    target.local[map.dim] = map.tile.local_extent(parts);
  }
}

/// Fills the memory of a tile that the tile does not hold. It follows the elements of a part that has fewer outputs
/// than other parts. No result depends on this memory, but kernels compute with it, and arbitrary values could
/// overflow.
///
///   a dim with room for [0, 6) that holds [0, 4): fills [4, 6)
template <class Fill>
inline void fill_spare_room(const movement& m, const buffer_layout& target, Fill fill) {
  buffer_layout spare = target;
  const auto room_of = [&](int d) { return index_range{-target.first[d], target.local[d] - target.first[d]}; };
  for (const auto& map : m.map->dims)
    if (map.is_tile()) {
      const auto room = room_of(map.dim);
      spare.held.begin[map.dim] = room.begin;
      spare.held.end[map.dim] = room.end;
    }
  if (!spare.held.any()) return;
  for (const auto& map : m.map->dims) {
    if (!map.is_tile()) continue;
    const int d = map.dim;
    const auto room = room_of(d);
    const index_range held{target.held.begin[d], target.held.end[d]};
    const bool is_empty = held.size() <= 0;
    for (const auto& outside :
         {index_range{room.begin, is_empty ? room.end : held.begin}, index_range{is_empty ? room.end : held.end, room.end}}) {
      auto box = spare.held;
      box.begin[d] = outside.begin;
      box.end[d] = outside.end;
      if (outside.size() > 0) fill(place(box, packed(box), spare), m.map->fill);
    }
    if (is_empty) return;
    spare.held.begin[d] = held.begin;
    spare.held.end[d] = held.end;
  }
}

/// Restricts a shard to the index of a turn, for a map that places the indices of a dim. Operand and result both
/// count this index as in the result.
inline void hold_placed(const movement& m, std::int64_t turn, bool is_source, buffer_layout& shard) {
  const int d = m.map->placed_dim;
  const auto from = m.map->placed[static_cast<int>(turn)];
  const auto index = is_source ? std::int64_t{from} : turn;
  const bool is_here = from >= 0 && index >= shard.held.begin[d] && index < shard.held.end[d];
  if (is_source) shard.first[d] += from - turn;
  shard.held.begin[d] = turn;
  shard.held.end[d] = is_here ? turn + 1 : turn;
}

/// Returns the shard of a movement's result that a turn copies to. Calls `fill(box, bits)` for the boxes that no
/// element of the operand maps to, if the map fills them. These boxes are before, after and between the steps of a
/// dim, restricted to the steps of the previous dims. Each box is filled in the first turn of its shard only.
///
///   slice of the first example, second device: holds steps [2, 4)
template <class Fill>
inline buffer_layout target_of(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t turn, Fill fill) {
  if (m.map != nullptr && m.map->has_margins()) return margin_of(mesh, m, at, turn, fill);
  if (m.map != nullptr && m.map->reshapes) return reshape_target(mesh, m, at, turn);
  auto target = layout_of(mesh, m.to_global, m.to, at);
  if (m.map == nullptr) return target;
  if (m.map->places()) {
    const int d = m.map->placed_dim;
    if (m.map->placed[static_cast<int>(turn)] < 0 && target.held.any() && turn >= target.held.begin[d] &&
        turn < target.held.end[d]) {
      auto box = target.held;
      box.begin[d] = turn;
      box.end[d] = turn + 1;
      fill(place(box, packed(box), target), m.map->fill);
    }
    hold_placed(m, turn, false, target);
    return target;
  }
  hold_tiles(mesh, m, at, target);
  if (turn == 0) fill_spare_room(m, target, fill);
  if (!target.held.any()) return target;
  const auto gap = [&](int d, std::int64_t begin, std::int64_t end) {
    if (turn > 0 || begin >= end || m.map->outside == outside_rule::keep) return;
    auto box = target.held;
    box.begin[d] = begin;
    box.end[d] = end;
    fill(place(box, packed(box), target), m.map->fill);
  };
  for (const auto& map : m.map->dims) {
    const int d = map.dim;
    const auto extent = m.from_global[d];
    const auto begin = target.held.begin[d], end = target.held.end[d];
    auto steps = steps_to(map, begin, end);
    if (extent == 0 || map.from_step == 0) steps.end = steps.begin;
    else if (map.beyond == continuation::none) steps = intersect(steps, steps_from(map, extent, 0, 0, extent));
    if (steps.size() <= 0) {
      gap(d, begin, end);
      target.held.end[d] = begin;
      return target;
    }
    gap(d, begin, map.to_first + map.to_step * steps.begin);
    gap(d, map.to_first + map.to_step * (steps.end - 1) + 1, end);
    const auto origin = target.first[d];
    target.step[d] = map.to_step;
    for (std::int64_t between = 1; between < map.to_step; ++between) {
      target.first[d] = origin + map.to_first + between;
      gap(d, steps.begin, steps.end - 1);
    }
    target.first[d] = origin + map.to_first;
    target.held.begin[d] = steps.begin;
    target.held.end[d] = steps.end;
  }
  return target;
}
inline buffer_layout target_of(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t turn) {
  return target_of(mesh, m, at, turn, [](const placed_box&, std::uint64_t) {});
}

/// Calls `visit(map, turn)` for each dim with a map. `turn` is the dim's own turn in the movement's turn with this
/// number.
template <class Visit>
inline void for_each_map(const movement& m, std::int64_t number, Visit visit) {
  if (m.map->has_margins()) {
    const auto which = margin_turn_of(m, number);
    return visit(m.map->dims[which.is_low ? 0 : 1], which.turn);
  }
  for (const auto& map : m.map->dims) {
    const auto turns = turns_of(map, m.from_global[map.dim], m.to_global[map.dim]);
    const auto count = turns.size() > 0 ? turns.size() : 1;
    visit(map, turns.begin + number % count);
    number /= count;
  }
}

/// Returns the shard of a movement's operand that a turn copies from.
inline buffer_layout source_of(const mesh_shape& mesh, const movement& m, const coordinates& at, std::int64_t turn) {
  if (m.map != nullptr && m.map->reshapes) return reshape_source(mesh, m, at, turn);
  auto source = layout_of(mesh, m.from_global, m.from, at);
  if (!m.from_order.empty()) source.lie_in(m.from_order);
  if (m.map == nullptr) return source;
  if (m.map->places()) {
    hold_placed(m, turn, true, source);
    return source;
  }
  for_each_map(m, turn, [&](const dim_map& map, std::int64_t own_turn) {
    const int d = map.dim;
    const auto extent = m.from_global[d];
    const auto steps = steps_from(map, extent, own_turn, source.held.begin[d], source.held.end[d]);
    const auto of = turned(map, extent, own_turn);
    source.first[d] += of.first;
    source.step[d] = of.step;
    source.held.begin[d] = steps.begin;
    source.held.end[d] = steps.end;
  });
  return source;
}

/// Calls `visit(coordinates)` for each member that may hold elements of `target` in one turn of a movement with a
/// map. In large groups these are few members. `holder` has the coordinates of this device.
///
///   slice of the first example, second device: visits the second and the third member
template <class Visit>
inline void for_each_holder(const mesh_shape& mesh, const movement& m, const buffer_layout& target, coordinates holder,
                            std::int64_t turn, Visit visit) {
  if (m.map->reshapes) return for_each_reshape_holder(mesh, m, target, holder, visit);
  if (m.map->places()) {
    const int d = m.map->placed_dim;
    move_to_holder(mesh, m.from, d,
                   m.map->placed[static_cast<int>(turn)] / shard_extent(m.from_global[d], parts_of(mesh, m.from, d)), holder);
    return visit(static_cast<const coordinates&>(holder));
  }
  struct {
    int dim;
    std::int64_t first, last, at;  // parts
  } along[max_mapped_dims];
  int rank = 0;
  bool any = true;
  for_each_map(m, turn, [&](const dim_map& map, std::int64_t own_turn) {
    const auto extent = m.from_global[map.dim];
    const auto of = turned(map, extent, own_turn);
    const auto steps = intersect(steps_from(map, extent, own_turn, 0, extent),
                                 index_range{target.held.begin[map.dim], target.held.end[map.dim]});
    any = any && steps.size() > 0;
    if (!any) return;
    const auto shard = shard_extent(extent, parts_of(mesh, m.from, map.dim));
    const auto first = of.first + of.step * steps.begin;
    const auto a = first / shard, b = (first + of.step * (steps.size() - 1)) / shard;
    along[rank++] = {map.dim, a < b ? a : b, a < b ? b : a, a < b ? a : b};
    move_to_holder(mesh, m.from, map.dim, along[rank - 1].first, holder);
  });
  if (!any) return;
  visit(static_cast<const coordinates&>(holder));
  for (int k = 0; k < rank;) {
    auto& dim = along[k];
    const bool goes_on = dim.at < dim.last;
    dim.at = goes_on ? dim.at + 1 : dim.first;
    move_to_holder(mesh, m.from, dim.dim, dim.at, holder);
    if (goes_on) visit(static_cast<const coordinates&>(holder));
    k = goes_on ? 0 : k + 1;
  }
}

}  // namespace gspmd::detail
