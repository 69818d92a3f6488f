// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "support/layouts.hpp"

namespace layouts {

struct mesh_layout {
  mesh_shape mesh;
  sharding layout;
};

/// Calls `f(from, to, shape, round)` with all shardings `from` of shapes of rank 0 to 3 on meshes of up to 6 devices.
/// `to` is another sharding of the same shape.
template <class F>
void for_all_pairs(F f) {
  std::uint64_t round = 0;
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{}, {5}, {1}, {0}, {7, 3}, {2, 9}, {4, 0}, {3, 1, 4}}) {
    const auto shape = shape_of(sizes);
    std::vector<mesh_layout> all;
    for (const auto& axes : all_meshes(6, 2))
      for (const auto& s : all_shardings(mesh_of(axes), shape.count)) all.push_back({mesh_of(axes), s});
    for (std::size_t i = 0; i < all.size(); ++i, ++round) {
      const auto& from = all[i];
      const auto& to = all[(i * 7 + 3) % all.size()];
      CAPTURE(text_of(from.layout, shape.count));
      CAPTURE(text_of(to.layout, shape.count));
      f(from, to, shape, round);
    }
  }
}

}  // namespace layouts
