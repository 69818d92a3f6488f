// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"

/// The algebra of windows (GSPMD 4.3 and A.2). It determines the elements of an operand that an output reads, and the
/// tile of the operand that each part of a split dim needs. dim_map::tile_of (index_map.hpp) converts a window to
/// tiles, which the planner prices and moves.
namespace gspmd::detail {

constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {  // b > 0
  return a >= 0 ? a / b : -((b - 1 - a) / b);
}
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }  // b > 0

/// A window along one dim. Output o reads, for every w < size, position
///
///   J = stride * o + dilation * w + offset
///
/// of the operand with its elements `base` apart. This is element J / base, if base divides J and the element exists.
/// Other positions are outside: they read zero, or the identity of a monoid.
///
///   window 3, padded by 1                 {.size = 3, .offset = -1}
///   the same, reversed                    {.size = 3, .dilation = -1, .offset = 1}
///   gradient with respect to the operand  {size, base, -dilation, -offset, stride}: a window over the gradient of the
///                                         result
struct window_dim {
  std::int64_t size = 1;      // at least 1
  std::int64_t stride = 1;    // at least 1
  std::int64_t dilation = 1;  // of the window; nonzero, negative if the window is reversed
  std::int64_t offset = 0;    // minus the low padding, plus the shift of a reversed window
  std::int64_t base = 1;      // dilation of the operand; at least 1

  [[nodiscard]] constexpr std::int64_t position(std::int64_t output, std::int64_t w) const {
    return stride * output + dilation * w + offset;
  }
  /// Return the first position that output 0 reads, and the number of positions up to its last one.
  [[nodiscard]] constexpr std::int64_t first() const { return dilation < 0 ? offset + dilation * (size - 1) : offset; }
  [[nodiscard]] constexpr std::int64_t span() const { return (dilation < 0 ? -dilation : dilation) * (size - 1) + 1; }

  /// Returns the range of positions that a range of outputs reads, or [0, 0) if the range is empty.
  [[nodiscard]] constexpr index_range positions(index_range outputs) const {
    if (outputs.size() <= 0) return {0, 0};
    return {stride * outputs.begin + first(), stride * (outputs.end - 1) + first() + span()};
  }
  /// Returns the elements at a range of positions. Elements before 0 or after the operand are outside.
  [[nodiscard]] constexpr index_range elements(index_range positions) const {
    return {ceil_div(positions.begin, base), ceil_div(positions.end, base)};
  }

  /// Returns the window over outputs that read element j: the window of the gradient with respect to the operand.
  [[nodiscard]] constexpr window_dim transposed() const { return {size, base, -dilation, -offset, stride}; }

  /// Returns the greatest common divisor of the distances between the positions that are read. Positions in between are
  /// not moved.
  [[nodiscard]] constexpr std::int64_t step() const {
    auto a = stride, b = size == 1 ? 0 : dilation < 0 ? -dilation : dilation;
    while (b != 0) {
      const auto rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }
  /// Returns the window over a tile (window_tile). The tile of a part holds every step-th position that the part reads,
  /// from the first one. Outputs count from the first output of the part. position(o, w) is an index of the tile, and
  /// is equal for all parts.
  [[nodiscard]] constexpr window_dim in_tile() const {
    const window_dim w{size, stride / step(), size == 1 ? 1 : dilation / step(), 0, 1};
    return {w.size, w.stride, w.dilation, -w.first(), 1};
  }

  friend constexpr bool operator==(const window_dim&, const window_dim&) = default;
};

/// The indices that the parts of a tile can hold: output o reads the indices [stride * o, stride * o + span). Tiles of
/// neighbours overlap or leave gaps.
///   5 outputs, stride 2, span 3, in two parts (3,2): [0,7) | [6,11)
///
/// If `width` is nonzero, outputs read the operand through `windows` windows of `width`. The windows begin at `begin`,
/// `begin + every` and so on. A part then holds only the windows that fit into it completely.
///   stride 1, span 4, windows of 2 at 1, 3, 5; 4 outputs in two parts: [1,5) of the room [0,5) | [3,7) of [2,7)
struct window_tile {
  std::int64_t outputs = 0, stride = 1, span = 0;
  std::int64_t begin = 0, every = 1, width = 0, windows = 0;  // width 0: every index that fits

  [[nodiscard]] constexpr index_range room_for(index_range some) const {
    if (some.size() <= 0) return {0, 0};
    return {stride * some.begin, stride * (some.end - 1) + span};
  }
  [[nodiscard]] constexpr index_range room(std::int64_t parts, std::int64_t part) const {
    return room_for(part_range(outputs, parts, part));
  }
  [[nodiscard]] constexpr index_range held(std::int64_t parts, std::int64_t part) const {
    const auto all = room(parts, part);
    if (width == 0) return all;
    const auto first = ceil_div(all.begin - begin, every), last = floor_div(all.end - width - begin, every);
    const index_range whole = intersect(index_range{first, last + 1}, index_range{0, windows});
    return whole.size() > 0 ? index_range{begin + every * whole.begin, begin + every * (whole.end - 1) + width}
                            : index_range{0, 0};
  }
  /// Return the number of all indices, and the largest number of indices of a part.
  [[nodiscard]] constexpr std::int64_t extent() const { return room_for({0, outputs}).size(); }
  [[nodiscard]] constexpr std::int64_t local_extent(std::int64_t parts) const {
    return room_for({0, shard_extent(outputs, parts)}).size();
  }
  /// Returns the parts that can hold at least one of `indices`.
  [[nodiscard]] constexpr index_range parts_with(index_range indices, std::int64_t parts) const {
    const auto first = floor_div(indices.begin - span, stride) + 1, last = ceil_div(indices.end, stride) - 1;  // outputs
    if (indices.size() <= 0 || first >= outputs || last < 0) return {0, 0};
    const auto shard = shard_extent(outputs, parts);
    return {first < 0 ? 0 : first / shard, (last < outputs ? last : outputs - 1) / shard + 1};
  }
  friend constexpr bool operator==(const window_tile&, const window_tile&) = default;
};

/// A window in StableHLO's notation. Padding counts positions after the elements of the operand are placed
/// `base_dilation` apart. Padding can be negative.
struct padded_window {
  std::int64_t size = 1, stride = 1, low = 0, high = 0, base_dilation = 1, window_dilation = 1;
  bool reversed = false;

  [[nodiscard]] constexpr window_dim window() const {
    const auto turned = reversed ? window_dilation * (size - 1) : 0;
    return {size, stride, reversed ? -window_dilation : window_dilation, turned - low, base_dilation};
  }
  /// Returns the number of positions of the padded operand.
  [[nodiscard]] constexpr std::int64_t padded(std::int64_t extent) const {
    return (extent == 0 ? 0 : (extent - 1) * base_dilation + 1) + low + high;
  }
  /// Returns the number of windows inside the padded operand.
  [[nodiscard]] constexpr std::int64_t outputs(std::int64_t extent) const {
    const auto room = padded(extent) - ((size - 1) * window_dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
  }
};

}  // namespace gspmd::detail
