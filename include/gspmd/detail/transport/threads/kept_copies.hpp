// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The copies of a device for the small movements in one of its groups: to work out what to copy takes longer than to copy it.
class kept_copies {
 public:
  /// As move_from_peers. Allocates for a movement that it does not know; another one may take the place of what it knows.
  template <class = once>
  void move(const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in, void* out,
            std::int64_t bytes_per_elem);

 private:
  static constexpr std::int64_t most_bytes = 32768;
  static constexpr std::size_t most_parts = 32;

  struct entry {
    movement of{};
    std::int64_t bytes_per_elem = 0;
    std::optional<index_map> map{};  // that of `of` may be gone
    std::vector<movement_part> parts{};

    /// The mesh and the axes are those of the group.
    [[nodiscard]] bool is_of(const movement& m, std::int64_t bytes) const {
      return of.number == m.number && bytes_per_elem == bytes && of.to_global == m.to_global && of.from.splits == m.from.splits &&
             of.to.splits == m.to.splits && of.from_order == m.from_order && map.has_value() == (m.map != nullptr) &&
             (m.map == nullptr || (of.from_global == m.from_global && *map == *m.map));
    }
  };
  std::array<std::unique_ptr<entry>, 16> all_;  // by the numbers of movements
};

template <class Once>
void kept_copies::move(const mesh_shape& mesh, const movement& m, const coordinates& me, peer_inputs peer_in, void* out,
                       std::int64_t bytes_per_elem) {
  auto& place = all_[m.number / 2 % all_.size()];  // all numbers are odd
  if (!place || !place->is_of(m, bytes_per_elem)) {
    if (m.number == 0 || local_elements(mesh, m.to_global, m.to) * bytes_per_elem > most_bytes)
      return move_from_peers(mesh, m, me, peer_in, out, bytes_per_elem);
    if (!place) place = std::make_unique<entry>();
    place->parts.reserve(most_parts + 1);  // nothing throws once it is known
    place->of = m;
    place->bytes_per_elem = bytes_per_elem;
    place->map.reset();
    if (m.map != nullptr) place->map = *m.map;
    place->parts.clear();
    for_each_part(
        mesh, m, me, bytes_per_elem,
        [](void* parts, const movement_part& part) {
          if (auto& all = *static_cast<std::vector<movement_part>*>(parts); all.size() <= most_parts) all.push_back(part);
        },
        &place->parts);
  }
  if (place->parts.size() > most_parts) return move_from_peers(mesh, m, me, peer_in, out, bytes_per_elem);
  for (const auto& part : place->parts) move_part(part, peer_in, out, bytes_per_elem);
}
GSPMD_COMPILED_ONCE(void kept_copies::move<once>(const mesh_shape&, const movement&, const coordinates&, peer_inputs, void*,
                                                 std::int64_t));

}  // namespace gspmd::detail
