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

template <class T>
void pack_whole(reduction_routes parts, const T* const* in, T* packed) {
  for (std::size_t k = 0; k < parts.size(); ++k) packed = std::copy_n(in[k], parts[k]->elems, packed);
}
template <class T>
void unpack_whole(reduction_routes parts, const T* packed, T* const* out) {
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::copy_n(packed, parts[k]->elems, out[k]);
    packed += parts[k]->elems;
  }
}

/// Packs, for each of `n` members, its block of each part, one after the other. Writes the offsets and counts of the
/// packed blocks to `blocks`.
template <class T>
void pack_blocks(reduction_routes parts, std::int64_t n, const T* const* in, T* packed, reduction_route& blocks) {
  std::size_t next[most_moved_together]{};  // next box of each part
  blocks.offsets.clear();
  blocks.counts.clear();
  blocks.offsets.push_back(0);
  std::int64_t at = 0;
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const auto& part = *parts[k];
      const auto elems = part.block_elems(j), begin = part.offsets[static_cast<std::size_t>(j)];
      if (part.is_stacked) std::copy_n(in[k] + begin, elems, packed + at);
      else if (elems > 0) copy_box(packed + (at - begin), in[k], part.boxes[part.packs[next[k]++]], sizeof(T));
      at += elems;
    }
    const auto elems = at - blocks.offsets.back();
    blocks.counts.push_back(elems <= largest_mpi_count ? static_cast<int>(elems) : 0);
    blocks.offsets.push_back(at);
  }
}
/// Copies the reduced block of member `self` to the results of the parts.
template <class T>
void unpack_block(reduction_routes parts, std::int64_t self, const T* packed, T* const* out) {
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const auto& part = *parts[k];
    if (part.is_stacked) std::copy_n(packed, part.block_elems(self), out[k]);
    else if (part.own != no_box) copy_box(out[k], packed, part.boxes[part.own], sizeof(T));
    packed += part.block_elems(self);
  }
}

}  // namespace gspmd::detail
