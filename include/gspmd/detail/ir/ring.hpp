// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/support/inline_vec.hpp"

namespace gspmd::detail {

/// The devices of a group in a ring, in the order of the parts of a dim that these axes split, major to minor. Every
/// device passes a buffer of `bytes` to a neighbour.
struct ring {
  inline_vec<std::int8_t, max_axes> axes{};
  std::int64_t bytes = 0;
  collective_origin origin{};

  [[nodiscard]] constexpr axis_mask mask() const {
    axis_mask all = 0;
    for (const auto a : axes) all |= axis_bit(a);
    return all;
  }
  [[nodiscard]] constexpr std::int64_t size(const mesh_shape& mesh) const { return mesh.size_of(mask()); }
  /// Returns the position of the device at `at`.
  [[nodiscard]] constexpr std::int64_t place_of(const mesh_shape& mesh, const coordinates& at) const {
    std::int64_t place = 0;
    for (const auto a : axes) place = place * mesh.sizes[a] + at[a];
    return place;
  }
  /// Returns the number, in the group over `mask()`, of the device that is `by` positions ahead of the device at `at`.
  [[nodiscard]] constexpr std::int64_t member_ahead(const mesh_shape& mesh, coordinates at, int by) const {
    const auto n = size(mesh);
    auto place = ((place_of(mesh, at) + by) % n + n) % n;
    for (int i = axes.count - 1; i >= 0; --i) {
      at[axes[i]] = static_cast<std::int32_t>(place % mesh.sizes[axes[i]]);
      place /= mesh.sizes[axes[i]];
    }
    return group_index(mesh, mask(), at);
  }
};

/// The number of rounds until every device of a ring of `n` has received all shards. It is n-1 in one direction, or
/// half of that in both directions concurrently. If n is even, the last shard is sent in one direction only.
///   n = 4, both ways: 2 ahead, 1 behind     n = 5: 2 and 2
struct ring_rounds {
  std::int64_t ahead = 0;   // shards of the devices ahead, the nearest first
  std::int64_t behind = 0;  // shards of the devices in the other direction

  constexpr ring_rounds(std::int64_t n, bool both_ways) : ahead(both_ways ? n / 2 : n - 1), behind(n - 1 - ahead) {}

  /// Returns the number of buffers: one buffer holds the shard that is sent while the next shard arrives in the other.
  [[nodiscard]] static constexpr std::int64_t buffers_of(std::int64_t rounds) { return rounds < 2 ? rounds : 2; }
  [[nodiscard]] constexpr std::int64_t buffers() const { return buffers_of(ahead) + buffers_of(behind); }
  /// Returns the buffer of the shard that was `away` positions ahead, or -`away` positions in the other direction.
  [[nodiscard]] constexpr std::int64_t buffer_of(std::int64_t away) const {
    return away > 0 ? (away - 1) % 2 : buffers_of(ahead) + (-away - 1) % 2;
  }
};

}  // namespace gspmd::detail
