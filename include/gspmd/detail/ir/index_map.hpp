// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/window.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

/// Which elements of a tensor become which elements of another one, where that is an affine function of the index (GSPMD 4.3):
/// shift, slice, pad, reverse, roll, the place of an operand in a concatenation, and the tile that a windowed operator reads.
namespace gspmd::detail {

/// Along `dim`, for every whole t, element from_first + from_step * t of the operand becomes element to_first + to_step * t of the
/// result, where both have it.
///   shift by b           i of the result is i + b        {0, false, b, 1, 0, 1}
///   slice from b, by a   i of the result is a * i + b    {0, false, b, a, 0, 1}
///   pad, c-1 between     c * i + b of the result is i    {0, false, 0, 1, b, c}
///   reverse of n         i of the result is n - 1 - i    {0, false, n - 1, -1, 0, 1}
///
/// With a tile, each part of the result holds the indices that its outputs read, and of the operand what lies there.
///   window of 3, stride 2, over 9, padded by 1           {0, false, 0, 1, 1, 1, {5, 2, 3}}
///   of x in 5,4 the tiles are    -,0,1,2,3,4,5 | 5,6,7,8,-
struct dim_map {
  std::int8_t dim = 0;
  bool wraps = false;                          // the operand goes on before its begin and after its end, periodically
  std::int64_t from_first = 0, from_step = 1;  // a step of 0: no element becomes any
  std::int64_t to_first = 0, to_step = 1;      // at least 1
  window_tile tile = {};                       // of an output at least, or the parts are those of the result

  [[nodiscard]] constexpr bool is_tile() const { return tile.span > 0; }
  /// What a part of the result holds.
  [[nodiscard]] constexpr index_range held(std::int64_t to_extent, std::int64_t parts, std::int64_t part) const {
    return is_tile() ? tile.held(parts, part) : part_range(to_extent, parts, part);
  }
  /// Every shard is its tile, or begins with it: nothing need be brought.
  [[nodiscard]] constexpr bool is_the_shard(std::int64_t extent, std::int64_t parts) const {
    if (from_first != to_first || from_step != 1 || to_step != 1 || wraps) return false;
    for (std::int64_t p = 0; p < parts; ++p) {
      const auto tile_is = tile.room(parts, p), shard_is = part_range(extent, parts, p);
      if (tile_is.size() > 0 && (tile_is.begin != shard_is.begin || tile_is.end > shard_is.end)) return false;
    }
    return true;
  }

  /// Element i of the result is element (a * i + b) / c of the operand, where c divides that; a is 1 or -1, or c is 1 to 2^31.
  static constexpr dim_map affine(int dim, std::int64_t a, std::int64_t b, std::int64_t c) {
    dim_map map;
    map.dim = static_cast<std::int8_t>(dim);
    std::int64_t x = a < 0 ? -a : a, y = c, inverse = 1, next = 0;  // inverse * |a| is x, but for multiples of c
    while (y != 0) {
      const auto times = x / y, rest = x % y, last = inverse - times * next;
      x = y;
      y = rest;
      inverse = next;
      next = last;
    }
    map.to_step = c / x;
    map.from_step = b % x == 0 ? a / x : 0;
    if (map.from_step == 0) return map;
    map.to_first = (a < 0 ? b : -b) / x % map.to_step * (inverse % map.to_step) % map.to_step;
    if (map.to_first < 0) map.to_first += map.to_step;
    map.from_first = (a * map.to_first + b) / c;
    return map;
  }
  /// The tile of a dim for a window with so many outputs: window.in_tile() says where in it they read.
  static constexpr dim_map tile_of(int dim, const window_dim& window, std::int64_t outputs) {
    const window_dim inside = window.in_tile();
    dim_map map = affine(dim, window.step(), window.first(), window.base);
    map.tile.outputs = outputs;
    map.tile.stride = inside.stride;
    map.tile.span = inside.span();
    return map;
  }
  /// The map that brings every element back, where no two elements become the same one.
  [[nodiscard]] constexpr dim_map inverse() const {
    dim_map back{dim, wraps, to_first, to_step, from_first, from_step};
    if (from_step > 0) return back;
    back.from_step = from_step == 0 ? 0 : -to_step;
    back.to_step = from_step == 0 ? 1 : -from_step;
    return back;
  }
  friend constexpr bool operator==(const dim_map&, const dim_map&) = default;
};

/// What becomes of elements of the result that no element of the operand becomes.
enum class outside_rule : std::uint8_t {
  fill,  // they are a constant
  keep,  // they stay as they are: others are written there
};

inline constexpr int max_mapped_dims = 4;

/// The maps of some dims; along the others the tensors have the same extent, and each index becomes itself.
///
/// Of a map with margins the result is what lies around each shard of the operand, along its only dim, where each index becomes
/// itself: `low` indices before the shard, then `high` ones behind what it holds.
///   x of 9 in 4,4,1; margins 1, 1     the result is -,4 | 3,8 | 7,-     (`-`: outside, or round the end)
///
/// A map that reshapes has none of this: every element keeps its row-major number (reshape_map.hpp).
struct index_map {
  inline_vec<dim_map, max_mapped_dims> dims;
  outside_rule outside = outside_rule::fill;
  std::uint64_t fill = 0;  // the bits of the constant, in as many bytes as an element has
  std::int64_t low = 0, high = 0;
  bool reshapes = false;

  [[nodiscard]] constexpr bool has_margins() const { return low + high > 0; }

  /// Of a map to tiles: the extents of a tile, and of all of them one behind the other.
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
  /// Whether every shard is its tile, or begins with it along each dim.
  [[nodiscard]] constexpr bool is_the_shard(const mesh_shape& mesh, const extents& operand, const sharding& s) const {
    for (const auto& d : dims)
      if (!d.is_the_shard(operand[d.dim], parts_of(mesh, s, d.dim))) return false;
    return true;
  }

  friend constexpr bool operator==(const index_map&, const index_map&) = default;
};

/// The t for which first + step * t lies in [begin, end).
constexpr index_range steps_within(std::int64_t first, std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (begin >= end || step == 0) return {0, 0};
  if (step == 1) return {begin - first, end - first};
  if (step == -1) return {first - end + 1, first - begin + 1};
  if (step > 0) return {floor_div(begin - first + step - 1, step), floor_div(end - first + step - 1, step)};
  return {floor_div(first - end, -step) + 1, floor_div(first - begin, -step) + 1};
}

/// The t whose elements lie in [begin, end) of the result.
constexpr index_range steps_to(const dim_map& map, std::int64_t begin, std::int64_t end) {
  return steps_within(map.to_first, map.to_step, begin, end);
}
/// The t whose elements lie in [begin, end) of the operand, which has `extent` indices, when it is gone round `turn` times.
constexpr index_range steps_from(const dim_map& map, std::int64_t extent, std::int64_t turn, std::int64_t begin,
                                 std::int64_t end) {
  return steps_within(map.from_first - turn * extent, map.from_step, begin, end);
}

/// How often the operand has been gone round where elements of the result come from: a range that holds 0 only, unless it wraps.
constexpr index_range turns_of(const dim_map& map, std::int64_t from_extent, std::int64_t to_extent) {
  if (!map.wraps) return {0, 1};
  const auto steps = steps_to(map, 0, map.is_tile() ? map.tile.extent() : to_extent);
  if (from_extent == 0 || map.from_step == 0 || steps.size() <= 0) return {0, 0};
  const auto a = floor_div(map.from_first + map.from_step * steps.begin, from_extent);
  const auto b = floor_div(map.from_first + map.from_step * (steps.end - 1), from_extent);
  return a < b ? index_range{a, b + 1} : index_range{b, a + 1};
}

/// The same over all dims of a map, numbered from 0. Margins come from before a shard or from behind it, and the operand is gone
/// round once at most.
constexpr std::int64_t count_turns(const index_map& map, const extents& from, const extents& to) {
  std::int64_t n = 1;
  if (map.has_margins()) return map.dims[0].wraps ? 6 : 2;
  for (const auto& d : map.dims) n *= turns_of(d, from[d.dim], to[d.dim]).size();
  return n;
}

}  // namespace gspmd::detail
