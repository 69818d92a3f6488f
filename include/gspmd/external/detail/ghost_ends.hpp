// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/extend/edge.hpp"
#include "gspmd/layouts/detail/placed_tables.hpp"

namespace gspmd::detail {

/// The elements after one end of a dim of a tensor, up to the furthest element that is read.
struct beyond_end {
  std::int64_t reach = 0;  // 0: no element is read
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;  // the constant, if `beyond` is continuation::none
};

/// Writes the ghost layers of a device's block that are outside the tensor: constants, or copies of elements of the
/// block and its other layers.
///
/// The copies are made first, along one dim after the other, then the constants. So a corner is constant if one of its
/// dims is constant there. An exchange fills the layers of a `round` dim.
class ghost_ends {
 public:
  /// `ends[d]` is the continuation below and above dim d. Throws gspmd::error, the same on all devices, if a layer
  /// copies an element that is in none of the block's layers.
  ghost_ends(const placed_tables& tables, int device, const extents& low, const extents& high,
             const std::vector<std::array<beyond_end, 2>>& ends) {
    for (std::int64_t k = 0; k < tables.mesh.device_count(); ++k) find(tables, k, k == device, low, high, ends);
  }
  /// Fills the layers of `block`, whose shape includes the layers.
  void fill(const strided_memory& block, std::int64_t elem_bytes) {
    if (constant_.size() < static_cast<std::size_t>(elem_bytes)) constant_.resize(static_cast<std::size_t>(elem_bytes));
    for (const auto& l : copies_)
      copy_layer(block, l, elem_bytes, block.at(index_at(block, l.dim, l.from), elem_bytes), block.strides);
    for (const auto& l : constants_) {
      std::memset(constant_.data(), 0, constant_.size());
      std::memcpy(constant_.data(), &l.fill, std::min(constant_.size(), sizeof l.fill));
      copy_layer(block, l, elem_bytes, constant_.data(), extents(block.shape.count, 0));
    }
  }

 private:
  struct layer {
    int dim;
    std::int64_t at, from;
    std::uint64_t fill;
  };
  static extents index_at(const strided_memory& block, int dim, std::int64_t i) {
    extents index(block.shape.count, 0);
    index[dim] = i;
    return index;
  }
  static void copy_layer(const strided_memory& block, const layer& l, std::int64_t elem_bytes, const void* from,
                         const extents& strides) {
    extents shape = block.shape;
    shape[l.dim] = 1;
    copy_strided(shape, elem_bytes, from, strides, const_cast<void*>(block.at(index_at(block, l.dim, l.at), elem_bytes)),
                 block.strides);
  }
  /// Finds the layers of `device` outside the tensor, and adds them if the device is this one. Example: the first
  /// device, with one layer below dim 0 and the continuation `edge`: layer 0 is a copy of layer 1.
  void find(const placed_tables& tables, std::int64_t device, bool is_mine, const extents& low, const extents& high,
            const std::vector<std::array<beyond_end, 2>>& ends) {
    const auto at = tables.mesh.coordinates_of(device);
    const auto held = [&](int d) -> const std::vector<std::int64_t>& {
      return tables.dims[static_cast<std::size_t>(d)].global[static_cast<std::size_t>(tables.part(d, at))];
    };
    for (int d = 0; d < tables.global.count; ++d)
      if (held(d).empty()) return;
    for (int d = 0; d < tables.global.count; ++d) {
      const auto extent = tables.global[d], first = held(d).front() - low[d];
      const auto room = low[d] + static_cast<std::int64_t>(held(d).size()) + high[d];
      for (std::int64_t p = 0; p < room; ++p) {
        const auto i = first + p;
        if (i >= 0 && i < extent) continue;
        const auto& end = ends[static_cast<std::size_t>(d)][i < 0 ? 0 : 1];
        if (end.beyond == continuation::round || (i < 0 ? -i : i - extent + 1) > end.reach) continue;
        const auto from = element_at(end.beyond, extent, i) - first;
        if (end.beyond == continuation::none) {
          if (is_mine) constants_.push_back({d, p, 0, end.fill});
        } else if (from < 0 || from >= room) {
          throw error("exchange_ghosts: along dim " + std::to_string(d) + " the layers of device " + std::to_string(device) +
                      " beyond the end of the tensor are copies of elements outside of its layers; give wider layers, or fill "
                      "them yourself");
        } else if (is_mine) {
          copies_.push_back({d, p, from, 0});
        }
      }
    }
  }

  std::vector<layer> copies_, constants_;
  std::vector<std::byte> constant_;
};

}  // namespace gspmd::detail
