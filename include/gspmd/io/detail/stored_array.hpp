// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Returns `f64` or, for an own type, its number and width: `own 0 of 16 bytes`. Only the user has the meaning of an
/// own type.
inline std::string stored_type(dtype type) {
  return is_own(type) ? "own " + std::to_string(own_number(type)) + " of " + std::to_string(bytes_of(type)) + " bytes"
                      : std::string(name_of(type));
}

/// A box of a tensor: the elements of a device or of a file.
struct stored_box {
  std::vector<std::int64_t> offset, size;

  [[nodiscard]] std::int64_t elems() const {
    std::int64_t n = 1;
    for (const auto s : size) n *= s;
    return n;
  }
  [[nodiscard]] held_ranges ranges() const {
    held_ranges r;
    r.rank = static_cast<int>(size.size());
    for (std::size_t d = 0; d < size.size(); ++d) {
      r.begin[d] = offset[d];
      r.end[d] = offset[d] + size[d];
    }
    return r;
  }
  friend auto operator<=>(const stored_box&, const stored_box&) = default;
};

/// A user's array that is saved or restored, with its sharding: all that a checkpoint needs of an array of any type.
struct stored_array {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> global, local;
  std::vector<std::string> sharding;               // by dim: the axes that split it, for readers
  std::int64_t devices = 1;                        // of its mesh
  bool is_whole = false;                           // on no mesh: each device has the whole array, and a process has it once
  bool is_partial = false;                         // devices have partial values
  bool is_constant = false;                        // can be saved, not restored
  std::function<stored_box(std::int64_t)> box_of;  // by device: its elements, at the beginning of its shard along each dim
  std::vector<std::byte*> shards;                  // of the devices of this process

  [[nodiscard]] std::int64_t local_bytes() const {
    std::int64_t n = bytes_of(type);
    for (const auto e : local) n *= e;
    return n;
  }
  /// Returns the layout of a device's box in its shard.
  [[nodiscard]] buffer_layout layout_on(std::int64_t device) const {
    buffer_layout layout;
    const auto box = box_of(device);
    layout.held = box.ranges();
    for (std::size_t d = 0; d < local.size(); ++d) {
      layout.local[d] = local[d];
      layout.first[d] = -box.offset[d];
      layout.step[d] = 1;
    }
    return layout;
  }
};

/// The part of an array that a device writes.
struct written_part {
  std::int64_t device;
  stored_box box;
};

/// Returns each box of an array once. If devices hold the same box, the first device writes it. A device without
/// elements writes nothing.
///
///     [4] on two devices, split      -> device 0: elements 0 and 1; device 1: elements 2 and 3
///     [4] on two devices, replicated -> device 0: elements 0 to 3
inline std::vector<written_part> written_parts(const stored_array& a, std::int64_t devices) {
  std::map<stored_box, std::int64_t> first;
  for (std::int64_t d = 0; d < devices; ++d)
    if (auto box = a.box_of(d); box.elems() > 0) first.emplace(std::move(box), d);
  std::vector<written_part> parts;
  for (const auto& [box, device] : first) parts.push_back({device, box});
  return parts;
}

/// Returns true if the boxes contain each element of a tensor once: the numbers of elements are equal, and no two boxes
/// overlap. Only boxes that overlap along one dim are compared: the dim with the most different offsets.
///
///     [4], boxes 0-1 and 2-3 -> true;   0-1 and 1-2 -> false;   0-1 and 3 -> false
inline bool is_tiling(const std::vector<std::int64_t>& global, const std::vector<const stored_box*>& boxes) {
  std::int64_t wanted = 1, held = 0;
  for (const auto e : global) wanted *= e;
  for (const auto* b : boxes) {
    for (std::size_t d = 0; d < global.size(); ++d)
      if (b->size[d] < 1 || b->size[d] > global[d] || b->offset[d] < 0 || b->offset[d] > global[d] - b->size[d]) return false;
    if (b->elems() > wanted - held) return false;
    held += b->elems();
  }
  if (held != wanted) return false;
  std::size_t along = 0, most = 0;
  for (std::size_t d = 0; d < global.size(); ++d) {
    std::vector<std::int64_t> offsets;
    for (const auto* b : boxes) offsets.push_back(b->offset[d]);
    std::sort(offsets.begin(), offsets.end());
    const auto different = static_cast<std::size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
    if (different > most) along = d;
    most = std::max(most, different);
  }
  if (global.empty()) return true;
  auto sorted = boxes;
  std::sort(sorted.begin(), sorted.end(), [along](auto* a, auto* b) { return a->offset[along] < b->offset[along]; });
  for (auto a = sorted.begin(); a != sorted.end(); ++a)
    for (auto b = a + 1; b != sorted.end() && (*b)->offset[along] < (*a)->offset[along] + (*a)->size[along]; ++b)
      if (intersect((*a)->ranges(), (*b)->ranges()).any()) return false;
  return true;
}

}  // namespace gspmd::detail
