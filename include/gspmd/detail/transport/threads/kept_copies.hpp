// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The copies of a device for the small movements in one of its groups. They are cached, because computing them takes
/// longer than copying the elements.
class kept_copies {
  struct entry;

 public:
  /// Allocates the memory to cache the copies of a movement. It is called while no peer reads the device's data; the
  /// other functions allocate nothing.
  template <class = once>
  void make_room(const mesh_shape& mesh, const movement& m, std::int64_t bytes_per_elem);

  /// Returns the copies of a movement for which make_room was called, or null if they are too many. A device calls it
  /// after it has arrived, while other members still arrive. The copies of another movement may be evicted.
  template <class = once>
  const entry* find(const mesh_shape& mesh, const movement& m, const coordinates& me, std::int64_t bytes_per_elem);

  /// Does the same as move_from_peers. `found` is the result of find for this movement.
  static void move(const entry* found, const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in,
                   void* out, std::int64_t bytes_per_elem) {
    if (found == nullptr) return move_from_peers(mesh, m, me, peer_in, out, bytes_per_elem);
    for (const auto& part : found->parts) move_part(part, peer_in, out, bytes_per_elem);
  }

 private:
  static constexpr std::int64_t most_bytes = 32768;
  static constexpr std::size_t most_parts = 32;

  struct entry {
    movement of{};
    std::int64_t bytes_per_elem = 0;  // 0: the entry has no movement yet
    std::optional<index_map> map{};   // a copy, because the map of `of` may be destroyed
    std::vector<movement_part> parts{};

    /// Returns true if the entry has the copies of `m`. The mesh and the axes of `m` must be those of the group.
    [[nodiscard]] bool is_of(const movement& m, std::int64_t bytes) const {
      return of.number == m.number && bytes_per_elem == bytes && of.to_global == m.to_global && of.from.splits == m.from.splits &&
             of.to.splits == m.to.splits && of.from_order == m.from_order && map.has_value() == (m.map != nullptr) &&
             (m.map == nullptr || (of.from_global == m.from_global && *map == *m.map));
    }
  };
  [[nodiscard]] std::unique_ptr<entry>& place_of(const movement& m) { return all_[m.number / 2 % all_.size()]; }  // all are odd
  [[nodiscard]] static bool is_small(const mesh_shape& mesh, const movement& m, std::int64_t bytes_per_elem) {
    return m.number != 0 && local_elements(mesh, m.to_global, m.to) * bytes_per_elem <= most_bytes;
  }

  std::array<std::unique_ptr<entry>, 16> all_;  // by movement number
};

/// The boxes of a device for the reduce_scatters in one of its groups, cached for the same reason.
class kept_boxes {
 public:
  /// Allocates the memory to cache a box. It is called while no peer reads the device's data.
  void make_room(const reduction& r) {
    if (auto& place = place_of(r); !place) place = std::make_unique<entry>();
  }
  /// Returns the box of a reduction for which make_room was called. A device calls it after it has arrived. The mesh
  /// and the axes must be those of the group.
  const scattered_box& find(const mesh_shape& mesh, const reduction& r, const coordinates& me) {
    auto& known = *place_of(r);
    if (r.number == 0 || known.number != r.number || !(known.global == r.global) || !(known.from == r.from.splits) ||
        !(known.to == r.to.splits)) {
      known.number = r.number;
      known.global = r.global;
      known.from = r.from.splits;
      known.to = r.to.splits;
      find_scattered_box(mesh, r, me, known.box);
    }
    return known.box;
  }

 private:
  struct entry {
    std::uint32_t number = 0;
    extents global;
    decltype(sharding::splits) from, to;
    scattered_box box;
  };
  [[nodiscard]] std::unique_ptr<entry>& place_of(const reduction& r) { return all_[r.number / 2 % all_.size()]; }  // all are odd

  std::array<std::unique_ptr<entry>, 8> all_;  // by reduction number
};

}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/transport/threads/kept_copies.ipp"
#endif
