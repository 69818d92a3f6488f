// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: layouts
#include "gspmd/layouts/placements.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/error_of.hpp"
#include "support/layouts.hpp"

using namespace gspmd;
using per_axis::placement;

namespace {

using caught::refusal;

detail::mesh_info named(const std::vector<int>& sizes) {
  detail::mesh_info m;
  const char* names[] = {"x", "y", "z"};
  for (std::size_t a = 0; a < sizes.size(); ++a) m.add_axis(names[a], sizes[a]);
  return m;
}

/// The tile of a device by the definition: axis after axis, the tile so far is cut by the next one.
std::int64_t tile_of(const detail::mesh_shape& mesh, const std::vector<placement>& list, int dim, const detail::coordinates& at) {
  std::int64_t tile = 0;
  for (std::size_t a = 0; a < list.size(); ++a)
    if (list[a] == per_axis::shard(dim)) tile = tile * mesh.sizes[static_cast<int>(a)] + at[static_cast<int>(a)];
  return tile;
}

}  // namespace

TEST_CASE("every placement list on meshes of up to three axes, there and back") {
  int lists = 0;
  for (const auto& sizes : layouts::all_meshes(8, 3)) {
    const auto mesh = named(sizes);
    for (int rank = 0; rank <= 3; ++rank) {
      std::vector<placement> choices{per_axis::replicate, per_axis::partial(), per_axis::partial(monoid::max)};
      for (int d = 0; d < rank; ++d) choices.push_back(per_axis::shard(d));
      std::vector<std::size_t> at(sizes.size(), 0);
      for (bool more = true; more;) {
        std::vector<placement> list;
        bool sum = false, max = false;
        for (const auto i : at) {
          list.push_back(choices[i]);
          sum = sum || list.back() == choices[1];
          max = max || list.back() == choices[2];
        }
        if (sum && max) {
          CHECK(refusal([&] { (void)sharding_of(mesh, list, rank); }).find("a value has one reduction") != std::string::npos);
        } else {
          const auto s = sharding_of(mesh, list, rank);
          CHECK(placements_of(mesh, s) == list);
          for (std::int64_t device = 0; device < mesh.shape.device_count(); ++device) {
            const auto c = mesh.shape.coordinates_of(device);
            for (int d = 0; d < rank; ++d) CHECK_EQ(part_index(mesh.shape, s, d, c), tile_of(mesh.shape, list, d, c));
          }
          ++lists;
        }
        more = false;
        for (std::size_t a = at.size(); a-- > 0 && !more;) {
          more = ++at[a] < choices.size();
          if (!more) at[a] = 0;
        }
      }
    }
  }
  CHECK_GT(lists, 3000);
}

TEST_CASE("every sharding: a list that means the same, or a refusal where an order would be lost") {
  int kept = 0, lost = 0;
  for (const auto& sizes : layouts::all_meshes(8, 3)) {
    const auto mesh = named(sizes);
    for (int rank = 0; rank <= 3; ++rank)
      for (const auto& s : layouts::all_shardings(mesh.shape, rank)) {
        bool in_order = true;  // by brute force: is there any list with these tiles?
        std::vector<placement> list(sizes.size(), per_axis::replicate);
        for (const auto& use : s.splits) list[static_cast<std::size_t>(use.axis)] = per_axis::shard(use.dim);
        for (std::int64_t device = 0; device < mesh.shape.device_count(); ++device) {
          const auto c = mesh.shape.coordinates_of(device);
          for (int d = 0; d < rank; ++d)
            in_order = in_order && part_index(mesh.shape, s, d, c) == tile_of(mesh.shape, list, d, c);
        }
        const auto said = refusal([&] {
          const auto found = placements_of(mesh, s);
          CHECK(found == list);
        });
        CHECK_EQ(said == "accepted", in_order);
        ++(in_order ? kept : lost);
      }
  }
  CHECK_GT(kept, 1000);
  CHECK_GT(lost, 300);
}

TEST_CASE("texts") {
  const auto mesh = named({2, 2, 2});
  CHECK_EQ(text_of({per_axis::shard(0), per_axis::replicate, per_axis::partial()}), "{Shard(0), Replicate, Partial(sum)}");
  CHECK_EQ(text_of({per_axis::partial(monoid::max)}), "{Partial(max)}");
  CHECK_EQ(refusal([&] {
             (void)placements_of(mesh, layouts::split({{2, 1}, {}}));
           }),
           "placements: axis `z` splits dim 0 before axis `y`, and placements are applied in the order of the mesh, x,y,z: the "
           "order would be lost; give the mesh the other order of axes, or let `y` split first");
  CHECK_EQ(refusal([&] { (void)sharding_of(mesh, {per_axis::shard(0)}, 2); }),
           "placements: there are 1 placement for a mesh with the axes x,y,z; write one for each axis");
  CHECK_EQ(refusal([&] {
             (void)sharding_of(mesh, {per_axis::shard(2), per_axis::replicate, per_axis::replicate}, 2);
           }),
           "placements: axis `x` shards dim 2 and the tensor has 2 dims; dims count from 0");
}
