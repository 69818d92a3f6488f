// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/window.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// Affine maps from elements of one tensor to elements of another (GSPMD 4.3). Examples are shift, slice, pad, reverse,
/// roll, an operand of a concatenation, and the tile that a windowed operator reads.
namespace gspmd::detail {

/// The continuation of a tensor beyond the ends of a dim. The comments show it for the elements 1 2 3 4.
enum class continuation : std::uint8_t {
  none,       // the tensor has no elements there; `outside` of the map applies
  round,      // 2 3 4 | 1 2 3 4 | 1 2 3
  edge,       // 1 1 1 | 1 2 3 4 | 4 4 4
  reflect,    // 4 3 2 | 1 2 3 4 | 3 2 1
  symmetric,  // 3 2 1 | 1 2 3 4 | 4 3 2
};

/// `divisor` is the greatest common divisor of two positive numbers a and b. `inverse` satisfies: inverse * a equals
/// the divisor modulo b.
struct divisor_of_two {
  std::int64_t divisor, inverse;
};
constexpr divisor_of_two common_divisor(std::int64_t a, std::int64_t b) {
  std::int64_t inverse = 1, next = 0;
  while (b != 0) {
    const auto times = a / b, rest = a % b, last = inverse - times * next;
    a = b;
    b = rest;
    inverse = next;
    next = last;
  }
  return {a, inverse};
}

/// A map along `dim`. For every integer t, element from_first + from_step * t of the operand becomes element
/// to_first + to_step * t of the result. If one of the two elements does not exist, nothing is mapped.
///   shift by b           i of the result is i + b        {0, {}, b, 1, 0, 1}
///   slice from b, by a   i of the result is a * i + b    {0, {}, b, a, 0, 1}
///   pad, c-1 between     c * i + b of the result is i    {0, {}, 0, 1, b, c}
///   reverse of n         i of the result is n - 1 - i    {0, {}, n - 1, -1, 0, 1}
///
/// With a tile, each part of the result holds the indices that its outputs read, filled with the operand's elements at
/// these indices.
///   window of 3, stride 2, over 9, padded by 1           {0, {}, 0, 1, 1, 1, {5, 2, 3}}
///   of x in 5,4 the tiles are    -,0,1,2,3,4,5 | 5,6,7,8,-
struct dim_map {
  std::int8_t dim = 0;
  continuation beyond = continuation::none;    // of the operand
  std::int64_t from_first = 0, from_step = 1;  // a step of 0: maps no element
  std::int64_t to_first = 0, to_step = 1;      // at least 1
  window_tile tile = {};                       // for at least one output; otherwise the parts are those of the result

  [[nodiscard]] constexpr bool is_tile() const { return tile.span > 0; }
  /// Returns the indices that a part of the result holds.
  [[nodiscard]] constexpr index_range held(std::int64_t to_extent, std::int64_t parts, std::int64_t part) const {
    return is_tile() ? tile.held(parts, part) : part_range(to_extent, parts, part);
  }
  /// Returns true if every shard is its tile, or begins with its tile, so that no element moves.
  [[nodiscard]] constexpr bool is_the_shard(std::int64_t extent, std::int64_t parts) const {
    if (from_first != to_first || from_step != 1 || to_step != 1 || beyond != continuation::none) return false;
    for (std::int64_t p = 0; p < parts; ++p) {
      const auto tile_is = tile.room(parts, p), shard_is = part_range(extent, parts, p);
      if (tile_is.size() <= 0) break;  // later parts have no tile either
      if (tile_is.begin != shard_is.begin || tile_is.end > shard_is.end) return false;
    }
    return true;
  }

  /// Element i of the result is element (a * i + b) / c of the operand, if c divides a * i + b. `a` is 1 or -1, or `c`
  /// is from 1 to 2^31.
  static constexpr dim_map affine(int dim, std::int64_t a, std::int64_t b, std::int64_t c) {
    dim_map map;
    map.dim = static_cast<std::int8_t>(dim);
    const auto [x, inverse] = common_divisor(a < 0 ? -a : a, c);
    map.to_step = c / x;
    map.from_step = b % x == 0 ? a / x : 0;
    if (map.from_step == 0) return map;
    map.to_first = (a < 0 ? b : -b) / x % map.to_step * (inverse % map.to_step) % map.to_step;
    if (map.to_first < 0) map.to_first += map.to_step;
    map.from_first = (a * map.to_first + b) / c;
    return map;
  }
  /// Returns the tile of a dim for a window with `outputs` outputs. window.in_tile() describes the reads inside the
  /// tile.
  static constexpr dim_map tile_of(int dim, const window_dim& window, std::int64_t outputs) {
    const window_dim inside = window.in_tile();
    dim_map map = affine(dim, window.step(), window.first(), window.base);
    map.tile.outputs = outputs;
    map.tile.stride = inside.stride;
    map.tile.span = inside.span();
    return map;
  }
  /// Returns the map that moves every element back. Requires that no two elements become the same element.
  [[nodiscard]] constexpr dim_map inverse() const {
    dim_map back{dim, beyond, to_first, to_step, from_first, from_step};
    if (from_step > 0) return back;
    back.from_step = from_step == 0 ? 0 : -to_step;
    back.to_step = from_step == 0 ? 1 : -from_step;
    return back;
  }
  friend constexpr bool operator==(const dim_map&, const dim_map&) = default;
};

/// The treatment of elements of the result that no element of the operand is mapped to.
enum class outside_rule : std::uint8_t {
  fill,  // set to a constant
  keep,  // kept: other maps write them
};

inline constexpr int max_mapped_dims = 4;
/// The largest number of indices of a dim that a map places individually.
inline constexpr int max_placed = 64;

/// Maps of some dims. The other dims have equal extents in both tensors, and each index maps to itself.
///
/// If a map has margins, the result is the elements around each shard of the operand along one dim, where each index
/// maps to itself. There are `low` indices before the shard, then `high` indices after the elements that the shard
/// holds. The map has two dim_maps of this dim: the continuation before the begin of the operand, and the continuation
/// after its end. `fill` and `high_fill` are the two constants.
///   x of 9 in 4,4,1; margins 1, 1     the result is -,4 | 3,8 | 7,-     (`-`: outside)
///
/// If a map reshapes, the other members are unused: every element keeps its row-major number (reshape_map.hpp).
///
/// If a map places the indices of one dim, it has no dim_maps. Index i of the result is index placed[i] of the operand,
/// or zeros if placed[i] is -1. Each index has its own turn.
struct index_map {
  inline_vec<dim_map, max_mapped_dims> dims;
  outside_rule outside = outside_rule::fill;
  std::uint64_t fill = 0, high_fill = 0;  // the bits of the constant, in the bytes of one element
  std::int64_t low = 0, high = 0;
  bool reshapes = false;
  std::int8_t placed_dim = 0;
  inline_vec<std::int8_t, max_placed> placed;

  [[nodiscard]] constexpr bool places() const { return placed.count > 0; }
  [[nodiscard]] constexpr bool has_margins() const { return low + high > 0; }

  /// Return the local and global extents under a map to tiles: of one tile, and of all tiles in sequence.
  [[nodiscard]] constexpr extents tile_local(const mesh_shape& mesh, const sharding& s, extents shard) const {
    for (const auto& d : dims) shard[d.dim] = d.tile.local_extent(parts_of(mesh, s, d.dim));
    return shard;
  }
  [[nodiscard]] constexpr extents tile_global(const mesh_shape& mesh, const sharding& s, extents operand) const {
    for (const auto& d : dims) {
      const auto parts = parts_of(mesh, s, d.dim);
      operand[d.dim] = parts * d.tile.local_extent(parts);
    }
    return operand;
  }
  /// Returns true if every shard is its tile, or begins with its tile, along each dim.
  [[nodiscard]] constexpr bool is_the_shard(const mesh_shape& mesh, const extents& operand, const sharding& s) const {
    for (const auto& d : dims)
      if (!d.is_the_shard(operand[d.dim], parts_of(mesh, s, d.dim))) return false;
    return true;
  }

  friend constexpr bool operator==(const index_map&, const index_map&) = default;
};

/// Returns true if all elements move by one offset along one dim.
constexpr bool moves_all_alike(const index_map& map) {
  return map.dims.count == 1 && map.dims[0].from_step == 1 && map.dims[0].to_step == 1;
}
/// Returns the distance from an element of the result to its element of the operand. The map has steps of 1 along a dim
/// of `extent`. If the dim is periodic, returns the shorter way.
constexpr std::int64_t offset_of(const dim_map& map, std::int64_t extent) {
  const auto offset = map.from_first - map.to_first;
  if (map.beyond != continuation::round) return offset;
  return 2 * offset > extent ? offset - extent : 2 * offset < -extent ? offset + extent : offset;
}

/// Returns the t for which first + step * t is in [begin, end).
constexpr index_range steps_within(std::int64_t first, std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (begin >= end || step == 0) return {0, 0};
  if (step == 1) return {begin - first, end - first};
  if (step == -1) return {first - end + 1, first - begin + 1};
  if (step > 0) return {floor_div(begin - first + step - 1, step), floor_div(end - first + step - 1, step)};
  return {floor_div(first - end, -step) + 1, floor_div(first - begin, -step) + 1};
}

/// Returns the t whose elements are in [begin, end) of the result.
constexpr index_range steps_to(const dim_map& map, std::int64_t begin, std::int64_t end) {
  return steps_within(map.to_first, map.to_step, begin, end);
}
/// Returns the effective continuation: if a dim has a single element, `reflect` acts like `symmetric`.
constexpr continuation mirrored(continuation beyond, std::int64_t extent) {
  return beyond == continuation::reflect && extent == 1 ? continuation::symmetric : beyond;
}

/// One turn of a map. If the operand continues beyond its ends, the map reads it in turns. There is one turn per
/// period, or per index beyond an edge, in both directions. In each turn the map is affine and reads elements in
/// `source`.
struct map_turn {
  std::int64_t first, step;  // element first + step * t
  index_range source;
};
constexpr map_turn turned(const dim_map& map, std::int64_t extent, std::int64_t turn) {
  const auto first = map.from_first, step = map.from_step, last = extent - 1;
  const bool is_back = turn % 2 != 0;
  switch (mirrored(map.beyond, extent)) {
    case continuation::none: return {first, step, {0, extent}};
    case continuation::round: return {first - turn * extent, step, {0, extent}};
    case continuation::edge:
      if (turn == 0) return {first, step, {0, extent}};
      return {first - turn, step, turn < 0 ? index_range{0, 1} : index_range{last, extent}};
    case continuation::reflect:
      if (is_back) return {(turn + 1) * last - first, -step, {1, last}};
      return {first - turn * last, step, {0, extent}};
    case continuation::symmetric:
      if (is_back) return {(turn + 1) * extent - 1 - first, -step, {0, extent}};
      return {first - turn * extent, step, {0, extent}};
  }
  return {};
}

/// Returns the t whose elements are in [begin, end) of the operand, which has `extent` indices, in one turn.
constexpr index_range steps_from(const dim_map& map, std::int64_t extent, std::int64_t turn, std::int64_t begin,
                                 std::int64_t end) {
  const auto of = turned(map, extent, turn);
  const auto in = intersect(of.source, index_range{begin, end});
  return steps_within(of.first, of.step, in.begin, in.end);
}

/// Returns the element at index i of a dim that continues beyond its `extent`. If the continuation is `none`, returns
/// i.
constexpr std::int64_t element_at(continuation beyond, std::int64_t extent, std::int64_t i) {
  const auto modulo = [i](std::int64_t n) { return i - floor_div(i, n) * n; };
  const auto last = extent - 1;
  switch (mirrored(beyond, extent)) {
    case continuation::none: return i;
    case continuation::round: return modulo(extent);
    case continuation::edge: return i < 0 ? 0 : i > last ? last : i;
    case continuation::reflect: {
      const auto k = modulo(2 * last);
      return k > last ? 2 * last - k : k;
    }
    case continuation::symmetric: {
      const auto k = modulo(2 * extent);
      return k > last ? 2 * extent - 1 - k : k;
    }
  }
  return i;
}

/// Returns the turns that map elements to the indices a to b of a dim that continues beyond its `extent`.
constexpr index_range turns_within(continuation beyond, std::int64_t extent, std::int64_t a, std::int64_t b) {
  if (extent == 0) return {0, 0};
  const auto last = extent - 1;
  switch (mirrored(beyond, extent)) {
    case continuation::none: return {0, 1};
    case continuation::edge: return {a < 0 ? a : 0, b > last ? b - last + 1 : 1};
    case continuation::reflect:  // both turns at an outermost element, which belongs to the even turn
      return {floor_div(a - 1, last), floor_div(b, last) + 1};
    case continuation::round:
    case continuation::symmetric: return {floor_div(a, extent), floor_div(b, extent) + 1};
  }
  return {};
}
/// Returns the turns of a map whose elements reach the result. The range contains only 0 unless the operand continues.
constexpr index_range turns_of(const dim_map& map, std::int64_t from_extent, std::int64_t to_extent) {
  if (map.beyond == continuation::none) return {0, 1};
  const auto steps = steps_to(map, 0, map.is_tile() ? map.tile.extent() : to_extent);
  if (map.from_step == 0 || steps.size() <= 0) return {0, 0};
  const auto a = map.from_first + map.from_step * steps.begin, b = map.from_first + map.from_step * (steps.end - 1);
  return turns_within(map.beyond, from_extent, a < b ? a : b, a < b ? b : a);
}

/// Returns the turns of a margin at one side of each shard.
constexpr index_range margin_turns(const index_map& map, std::int64_t extent, bool is_low) {
  const auto width = is_low ? map.low : map.high;
  if (width == 0) return {0, 0};
  return turns_within(map.dims[is_low ? 0 : 1].beyond, extent, is_low ? -width : 0, is_low ? extent - 1 : extent - 1 + width);
}

/// Returns the number of turns over all dims of a map. The turns of the first dim vary fastest. If the map has margins,
/// the turns of the high margin follow those of the low margin.
constexpr std::int64_t count_turns(const index_map& map, const extents& from, const extents& to) {
  std::int64_t n = 1;
  if (map.places()) return map.placed.count;
  if (map.has_margins()) {
    const auto extent = from[map.dims[0].dim];
    return margin_turns(map, extent, true).size() + margin_turns(map, extent, false).size();
  }
  for (const auto& d : map.dims) n *= turns_of(d, from[d.dim], to[d.dim]).size();
  return n;
}

}  // namespace gspmd::detail
