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

/// `f64`; a type of the user's own is its number and its width, `own 0 of 16 bytes`: what it means is the user's to know.
inline std::string stored_type(dtype type) {
  return is_own(type) ? "own " + std::to_string(own_number(type)) + " of " + std::to_string(bytes_of(type)) + " bytes"
                      : std::string(name_of(type));
}

/// A box of a tensor: what one device holds of it, or one file.
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

/// An array of the user's that is saved or restored, as it lies on the devices: all that a checkpoint knows of one, whatever its type.
struct stored_array {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::int64_t> global, local;
  std::vector<std::string> sharding;               // of each dim the axes that split it: for people
  std::int64_t devices = 1;                        // of its mesh
  bool is_whole = false;                           // on no mesh: every device has all of it, and a process has it once
  bool is_partial = false;                         // devices hold terms
  bool is_constant = false;                        // may be saved and not restored
  std::function<stored_box(std::int64_t)> box_of;  // what a device holds, at the beginning of its shard along every dim
  std::vector<std::byte*> shards;                  // of the devices of this process

  [[nodiscard]] std::int64_t local_bytes() const {
    std::int64_t n = bytes_of(type);
    for (const auto e : local) n *= e;
    return n;
  }
  /// Where the elements of a device's box lie in its shard.
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

/// The part of an array that one device writes.
struct written_part {
  std::int64_t device;
  stored_box box;
};

/// The boxes of an array, each once: of devices that hold the same the first one writes it, and one that holds nothing writes nothing.
inline std::vector<written_part> written_parts(const stored_array& a, std::int64_t devices) {
  std::map<stored_box, std::int64_t> first;
  for (std::int64_t d = 0; d < devices; ++d)
    if (auto box = a.box_of(d); box.elems() > 0) first.emplace(std::move(box), d);
  std::vector<written_part> parts;
  for (const auto& [box, device] : first) parts.push_back({device, box});
  return parts;
}

/// Whether boxes hold every element of a tensor once: so many elements as it has, and no two boxes meet. Only such are compared as meet along
/// the dim that has most different offsets.
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
