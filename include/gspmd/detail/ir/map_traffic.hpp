// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// The traffic of a movement with an index map, if both tensors have the same splits. The result can be in tiles. The
/// parts of each dim are evaluated one by one. Devices are not, because their traffic is a product over the dims.
namespace gspmd::detail {

struct map_traffic {
  std::int64_t sent = 0, received = 0;  // elements, of the device with the largest number
  std::int64_t messages = 0;            // the largest number that a device sends or receives
  axis_mask axes = 0;  // the axes of the groups that exchange elements; 0: every device already holds its elements

  /// Returns the largest number of elements that a device sends or receives. The other devices wait for this device.
  [[nodiscard]] constexpr std::int64_t elems() const { return sent > received ? sent : received; }
};

/// The elements that one part of a dim sends or receives: `all`, including `own` elements that stay in the part.
struct part_share {
  std::int64_t all = 1, own = 1;
};

/// The shares that can determine the largest number of moved elements. No share has a larger `all` and a smaller `own`
/// than another one.
class part_shares {
 public:
  constexpr void add(part_share share) {
    if (share.all == 0) return;
    std::size_t kept = 0;
    for (const auto& other : shares_)
      if (other.all >= share.all && other.own <= share.own) return;
    for (std::size_t i = 0; i < shares_.size(); ++i)
      if (shares_[i].all > share.all || shares_[i].own < share.own) shares_[kept++] = shares_[i];
    shares_.resize(kept);
    shares_.push_back(share);
  }
  /// Returns the shares of the product of this dim and the dims of `others`.
  [[nodiscard]] constexpr part_shares times(const part_shares& others) const {
    part_shares result;
    for (const auto& a : shares_)
      for (const auto& b : others.shares_) result.add({a.all * b.all, a.own * b.own});
    return result;
  }
  /// Returns the largest number of elements that leave a part.
  [[nodiscard]] constexpr std::int64_t leaves() const {
    std::int64_t most = 0;
    for (const auto& s : shares_) most = s.all - s.own > most ? s.all - s.own : most;
    return most;
  }

 private:
  vec<part_share> shares_;
};

/// Returns the number of parts, of `shard` indices each, that contain elements `first + step * t`.
constexpr std::int64_t parts_met(std::int64_t first, std::int64_t step, index_range steps, std::int64_t shard) {
  if (steps.size() <= 0) return 0;
  if (step >= shard || -step >= shard) return steps.size();
  const auto a = (first + step * steps.begin) / shard, b = (first + step * (steps.end - 1)) / shard;
  return (a < b ? b - a : a - b) + 1;
}

/// The parts of one dim.
struct dim_traffic {
  part_shares sent, received, targets, sources;

  constexpr dim_traffic() = default;

  /// Computes the traffic of one map, or of several maps that fill a part together.
  constexpr dim_traffic(span<const dim_map> maps, std::int64_t from, std::int64_t to, std::int64_t parts) {
    const auto from_shard = shard_extent(from, parts), to_shard = shard_extent(to, parts);
    // A mesh can have a million more parts than a dim has elements. Parts after all elements, or after all outputs of
    // tiles, exchange nothing.
    const auto parts_of_elems = [parts](std::int64_t elems) {
      const auto shard = shard_extent(elems, parts);
      return shard == 0 ? 0 : (elems + shard - 1) / shard;
    };
    auto count = parts_of_elems(from);
    for (const auto& map : maps) {
      const auto filled = parts_of_elems(map.is_tile() ? map.tile.outputs : to);
      if (filled > count) count = filled;
    }
    for (std::int64_t p = 0; p < count; ++p) {
      const auto from_part = part_range(from, parts, p);
      part_share gives{0, 0}, gets{0, 0}, goes_to{0, 0}, comes_from{0, 0};
      for (const auto& map : maps) {
        const auto to_part = map.held(to, parts, p);
        const auto turns = turns_of(map, from, to);
        const auto to_all = steps_to(map, 0, map.is_tile() ? map.tile.extent() : to);
        const auto to_here = steps_to(map, to_part.begin, to_part.end);
        for (auto turn = turns.begin; turn < turns.end; ++turn) {
          const auto given = intersect(steps_from(map, from, turn, from_part.begin, from_part.end), to_all);
          const auto stays = intersect(given, to_here).size();
          if (map.is_tile()) {
            add_given_to_tiles(map, given, parts, gives.all, goes_to.all);
          } else {
            gives.all += given.size();
            goes_to.all += parts_met(map.to_first, map.to_step, given, to_shard);
          }
          gives.own += stays;
          const auto got = intersect(steps_from(map, from, turn, 0, from), to_here);
          gets.all += got.size();
          gets.own += stays;
          const auto source = turned(map, from, turn);
          comes_from.all += parts_met(source.first, source.step, got, from_shard);
          goes_to.own += stays > 0 ? 1 : 0;
          comes_from.own += stays > 0 ? 1 : 0;
        }
      }
      sent.add(gives);
      received.add(gets);
      targets.add(goes_to);
      sources.add(comes_from);
    }
  }

  /// Computes the traffic of a map that places indices individually.
  constexpr dim_traffic(const index_map& map, std::int64_t extent, std::int64_t parts) {
    const auto shard = shard_extent(extent, parts);
    for (std::int64_t p = 0; p < parts && p * shard < extent; ++p) {
      part_share gives{0, 0}, gets{0, 0};
      for (std::int64_t i = 0; i < extent; ++i) {
        const auto from = map.placed[static_cast<int>(i)];
        if (from < 0) continue;
        const bool is_from = from / shard == p, is_to = i / shard == p;
        gives.all += is_from ? 1 : 0;
        gets.all += is_to ? 1 : 0;
        gives.own += is_from && is_to ? 1 : 0;
        gets.own += is_from && is_to ? 1 : 0;
      }
      sent.add(gives);
      received.add(gets);
      targets.add(gives);
      sources.add(gets);
    }
  }

 private:
  /// Counts the tiles that hold each element. Tiles overlap, so an element can be sent to several tiles.
  static constexpr void add_given_to_tiles(const dim_map& map, index_range given, std::int64_t parts, std::int64_t& elems,
                                           std::int64_t& targets) {
    if (given.size() <= 0) return;
    const index_range indices{map.to_first + map.to_step * given.begin, map.to_first + map.to_step * (given.end - 1) + 1};
    const auto met = map.tile.parts_with(indices, parts);
    for (auto q = met.begin; q < met.end; ++q) {
      const auto tile = map.tile.held(parts, q);
      const auto sent = intersect(given, steps_to(map, tile.begin, tile.end)).size();
      elems += sent;
      targets += sent > 0 ? 1 : 0;
    }
  }
};

/// Returns the two shifts with the same exchange as the margins of a map.
constexpr inline_vec<dim_map, 2> margin_shifts(const index_map& map) {
  inline_vec<dim_map, 2> shifts{map.dims[0], map.dims[1]};
  shifts[0].from_first = -map.low;
  shifts[1].from_first = map.high;
  return shifts;
}

/// The exchange along one dim, in closed form, if every index moves to the same part or an adjacent part. Most
/// movements are of this kind, and at compile time every evaluated part costs time. A map with margins consists of two
/// maps.
///   shift by 2 of 12 in 4,4,4     each part except one sends 2, and each part except one receives 2
struct shift_traffic {
  bool is_one = false;                   // the exchange is of this kind
  std::int64_t elems = 0, messages = 0;  // of the part with the largest number, sent or received: these are equal

  constexpr shift_traffic(span<const dim_map> maps, std::int64_t from, std::int64_t to, std::int64_t parts) {
    if (from != to || from == 0) return;
    const auto shard = shard_extent(from, parts), with_data = (from + shard - 1) / shard;
    const auto smallest = from - (with_data - 1) * shard;
    std::int64_t given[3]{}, targets[3]{};  // of the first part, a middle part and the last part
    for (const auto& map : maps) {
      if (map.is_tile() || map.from_step != 1 || map.to_step != 1) return;
      const auto offset = offset_of(map, from), by = offset < 0 ? -offset : offset;
      if (by > smallest || (by == smallest && map.beyond == continuation::reflect)) return;
      const bool gives[]{offset < 0 || map.beyond == continuation::round, true, offset > 0 || map.beyond == continuation::round};
      for (int k = 0; k < 3; ++k) {
        given[k] += gives[k] ? by : 0;
        targets[k] += gives[k] && by > 0 ? 1 : 0;
      }
    }
    is_one = true;
    if (with_data == 1) return;
    for (int k = 0; k < 3; ++k) {
      if (k == 1 && with_data == 2) continue;
      if (given[k] > elems) elems = given[k];
      if (targets[k] > messages) messages = targets[k];
    }
  }
};

/// Returns the traffic of an exchange along a single dim.
constexpr map_traffic traffic_of_shift(const mesh_shape& mesh, const extents& from, const sharding& s, int dim,
                                       const shift_traffic& along) {
  map_traffic result;
  const auto shard = shard_extent(from[dim], parts_of(mesh, s, dim));
  const auto others = shard == 0 ? 0 : local_elements(mesh, from, s) / shard;
  if (along.elems == 0 || others == 0) return {};
  result.sent = result.received = along.elems * others;
  result.messages = along.messages;
  result.axes = s.axes_of(dim) & mesh.wide_axes();
  return result;
}

/// Computes the traffic of any map by evaluating the parts one by one.
constexpr map_traffic counted_traffic(const mesh_shape& mesh, const extents& from, const extents& to, const sharding& s,
                                      const index_map& map) {
  map_traffic result;
  part_shares sent, received, targets, sources;
  for (auto* shares : {&sent, &received, &targets, &sources}) shares->add({1, 1});
  auto elems = local_elements(mesh, from, s);  // of the dims without a map
  const auto add_dim = [&](int dim, std::int64_t parts, const dim_traffic& along) {
    if (along.sent.leaves() > 0)
      for (const auto& use : s.splits)
        if (use.dim == dim && mesh.sizes[use.axis] > 1) result.axes |= axis_bit(use.axis);
    sent = sent.times(along.sent);
    received = received.times(along.received);
    targets = targets.times(along.targets);
    sources = sources.times(along.sources);
    if (elems > 0) elems /= shard_extent(from[dim], parts);
  };
  const auto add = [&](span<const dim_map> maps, const extents& result_shape) {
    const int dim = maps[0].dim;
    const auto parts = parts_of(mesh, s, dim);
    add_dim(dim, parts, dim_traffic(maps, from[dim], result_shape[dim], parts));
  };
  if (map.places()) {
    const auto parts = parts_of(mesh, s, map.placed_dim);
    add_dim(map.placed_dim, parts, dim_traffic(map, from[map.placed_dim], parts));
  } else if (map.has_margins()) {
    add(margin_shifts(map).items, from);
  } else {
    for (const auto& d : map.dims) add({&d, 1}, to);
  }
  if (elems == 0 || sent.leaves() == 0) return {};
  result.sent = elems * sent.leaves();
  result.received = elems * received.leaves();
  result.messages = targets.leaves() > sources.leaves() ? targets.leaves() : sources.leaves();
  return result;
}

constexpr map_traffic traffic_of(const mesh_shape& mesh, const extents& from, const extents& to, const sharding& s,
                                 const index_map& map) {
  const auto closed = [&](span<const dim_map> maps, const extents& result, map_traffic& traffic) {
    const int dim = maps[0].dim;
    const shift_traffic along(maps, from[dim], result[dim], parts_of(mesh, s, dim));
    if (along.is_one) traffic = traffic_of_shift(mesh, from, s, dim, along);
    return along.is_one;
  };
  map_traffic result;
  if (map.has_margins() ? closed(margin_shifts(map).items, from, result)
                        : map.dims.count == 1 && !map.places() && closed({map.dims.items, 1}, to, result))
    return result;
  return counted_traffic(mesh, from, to, s, map);
}

/// Returns the traffic of a map to tiles of an operand.
constexpr map_traffic traffic_of_tiles(const mesh_shape& mesh, const extents& operand, const sharding& s, const index_map& map) {
  return traffic_of(mesh, operand, map.tile_global(mesh, s, operand), s, map);
}

}  // namespace gspmd::detail
