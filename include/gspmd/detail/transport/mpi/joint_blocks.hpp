// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/message_route.hpp"

/// Carries out several reductions with the same kind and group as one reduction: packs their operands into one buffer
/// and unpacks the results.
namespace gspmd::detail {

using reduction_routes = span<const reduction_route* const>;

inline void pack_whole(reduction_routes parts, std::int64_t bytes_per_elem, const void* const* in, std::byte* packed) {
  for (std::size_t k = 0; k < parts.size(); ++k)
    packed = std::copy_n(static_cast<const std::byte*>(in[k]), parts[k]->elems * bytes_per_elem, packed);
}
inline void unpack_whole(reduction_routes parts, std::int64_t bytes_per_elem, const std::byte* packed, void* const* out) {
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto bytes = parts[k]->elems * bytes_per_elem;
    std::copy_n(packed, bytes, static_cast<std::byte*>(out[k]));
    packed += bytes;
  }
}

/// Packs, for each of `n` members, its block of each part, one after the other. Writes the offsets and counts of the
/// packed blocks to `blocks`.
inline void pack_blocks(reduction_routes parts, std::int64_t n, std::int64_t bytes_per_elem, const void* const* in,
                        std::byte* packed, reduction_route& blocks) {
  std::size_t next[most_moved_together]{};  // next box of each part
  blocks.offsets.clear();
  blocks.counts.clear();
  blocks.offsets.push_back(0);
  std::int64_t at = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const auto& part = *parts[k];
      const auto elems = part.block_elems(j), begin = part.offsets[static_cast<std::size_t>(j)];
      if (part.is_stacked)
        std::copy_n(static_cast<const std::byte*>(in[k]) + begin * bytes_per_elem, elems * bytes_per_elem,
                    packed + at * bytes_per_elem);
      else if (elems > 0)
        copy_box(packed + (at - begin) * bytes_per_elem, in[k], part.boxes[part.packs[next[k]++]], bytes_per_elem);
      at += elems;
    }
    const auto elems = at - blocks.offsets.back();
    blocks.counts.push_back(elems <= largest_mpi_count ? static_cast<int>(elems) : 0);
    blocks.offsets.push_back(at);
  }
}
/// Copies the reduced block of member `self` to the results of the parts.
inline void unpack_block(reduction_routes parts, std::int64_t self, std::int64_t bytes_per_elem, const std::byte* packed,
                         void* const* out) {
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto& part = *parts[k];
    const auto bytes = part.block_elems(self) * bytes_per_elem;
    if (part.is_stacked) std::copy_n(packed, bytes, static_cast<std::byte*>(out[k]));
    else if (part.own != no_box) copy_box(out[k], packed, part.boxes[part.own], bytes_per_elem);
    packed += bytes;
  }
}

}  // namespace gspmd::detail
