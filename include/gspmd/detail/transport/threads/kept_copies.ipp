// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/threads/kept_copies.hpp"

namespace gspmd::detail {

template <class Once>
void kept_copies::make_room(const mesh_shape& mesh, const movement& m, std::int64_t bytes_per_elem) {
  auto& place = place_of(m);
  if (place || !is_small(mesh, m, bytes_per_elem)) return;
  auto made = std::make_unique<entry>();
  made->parts.reserve(most_parts + 1);
  place = std::move(made);  // an entry always has its whole memory
}
GSPMD_COMPILED_ONCE(void kept_copies::make_room<once>(const mesh_shape&, const movement&, std::int64_t));

template <class Once>
const kept_copies::entry* kept_copies::find(const mesh_shape& mesh, const movement& m, const coordinates& me,
                                            std::int64_t bytes_per_elem) {
  entry* const known = place_of(m).get();
  if (known == nullptr) return nullptr;
  if (!known->is_of(m, bytes_per_elem)) {
    if (!is_small(mesh, m, bytes_per_elem)) return nullptr;
    known->of = m;
    known->bytes_per_elem = bytes_per_elem;
    known->map.reset();
    if (m.map != nullptr) known->map = *m.map;
    known->parts.clear();
    for_each_part(
        mesh, m, me, bytes_per_elem,
        [](void* parts, const movement_part& part) {
          if (auto& all = *static_cast<std::vector<movement_part>*>(parts); all.size() <= most_parts) all.push_back(part);
        },
        &known->parts);
  }
  return known->parts.size() <= most_parts ? known : nullptr;
}
GSPMD_COMPILED_ONCE(const kept_copies::entry* kept_copies::find<once>(const mesh_shape&, const movement&, const coordinates&,
                                                                      std::int64_t));

}  // namespace gspmd::detail
