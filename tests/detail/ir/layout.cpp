// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "gspmd/detail/support/text.hpp"
#include "support/layouts.hpp"

using namespace layouts;

namespace {

/// A device order that is neither the identity nor its own inverse where the mesh allows it.
struct ordered_mesh {
  mesh_shape mesh;
  std::vector<std::int32_t> order, position;

  ordered_mesh(const std::vector<int>& sizes, bool permuted) : mesh(mesh_of(sizes)) {
    if (!permuted) return;
    const auto count = static_cast<std::size_t>(mesh.device_count());
    for (std::size_t p = 0; p < count; ++p) order.push_back(static_cast<std::int32_t>((p * 5 + 3) % count));
    if (std::set<std::int32_t>(order.begin(), order.end()).size() != count)
      for (std::size_t p = 0; p < count; ++p) order[p] = static_cast<std::int32_t>((p + 1) % count);
    position.resize(count);
    for (std::size_t p = 0; p < count; ++p) position[static_cast<std::size_t>(order[p])] = static_cast<std::int32_t>(p);
    mesh.order = order.data();
    mesh.position = position.data();
  }
  ordered_mesh(const ordered_mesh&) = delete;
};

/// Returns true if a device holds an element of a dim, by the definition. The device tensor of the dim's axes,
/// row-major, covers the dim in steps of the rounded-up extent.
bool holds_by_definition(const std::vector<int>& sizes, const sharding& s, int dim, std::int64_t extent, const coordinates& at,
                         std::int64_t element) {
  std::vector<int> axes;
  for (const auto& use : s.splits)
    if (use.dim == dim) axes.push_back(use.axis);
  std::int64_t parts = 1;
  std::int64_t part = 0;
  for (std::size_t i = axes.size(); i-- > 0;) {  // the last axis is the minor one
    part += parts * at[axes[i]];
    parts *= sizes[static_cast<std::size_t>(axes[i])];
  }
  std::int64_t step = 0;  // the least extent of a part for which `parts` parts cover the dim
  while (step * parts < extent) ++step;
  return element >= part * step && element < (part + 1) * step;
}

}  // namespace

TEST_CASE("coordinates and device ids are a bijection, under any device order") {
  for (const auto& sizes : all_meshes(16, 4))
    for (const bool permuted : {false, true}) {
      const ordered_mesh m(sizes, permuted);
      std::set<std::vector<int>> places;
      bool good = true;
      for (std::int32_t device = 0; device < m.mesh.device_count(); ++device) {
        const auto at = m.mesh.coordinates_of(device);
        good = good && at.count == static_cast<int>(sizes.size()) && m.mesh.device_at(at) == device;
        for (int a = 0; a < at.count; ++a) good = good && at[a] >= 0 && at[a] < sizes[static_cast<std::size_t>(a)];
        places.insert(std::vector<int>(at.begin(), at.end()));
      }
      CHECK(good);
      CHECK(static_cast<std::int64_t>(places.size()) == m.mesh.device_count());
    }
}

TEST_CASE("devices are numbered with the last axis fastest") {
  const auto mesh = mesh_of({2, 3, 4});
  CHECK(mesh.coordinates_of(0) == coordinates(3, 0));
  CHECK(mesh.coordinates_of(1)[2] == 1);
  CHECK(mesh.coordinates_of(4)[1] == 1);
  CHECK(mesh.coordinates_of(12)[0] == 1);
  CHECK(mesh.size_of(0b101) == 8);
  CHECK(mesh_of({}).device_count() == 1);
  CHECK(mesh_of({}).coordinates_of(0).count == 0);
}

TEST_CASE(
    "every element is held by the right devices and by no others, for every sharding of rank <= 3 on every mesh up to 16 "
    "devices") {
  const std::vector<std::vector<std::vector<std::int64_t>>> shapes = {
      {{}}, {{1}, {5}, {16}, {0}, {9}}, {{5, 3}, {4, 8}, {1, 7}}, {{3, 2, 5}, {4, 1, 2}}};
  std::int64_t checked = 0;
  for (const auto& sizes : all_meshes(16, 4))
    for (const bool permuted : {false, true}) {
      const ordered_mesh m(sizes, permuted);
      const auto devices = m.mesh.device_count();
      if (permuted && sizes.size() > 2) continue;  // the order acts on devices, not on shardings
      for (int rank = 0; rank <= 3; ++rank)
        for (const auto& s : all_shardings(m.mesh, rank))
          for (const auto& shape : shapes[static_cast<std::size_t>(rank)]) {
            if (sizes.size() == 4 && rank == 3 && shape[0] != 3) continue;
            const auto global = shape_of(shape);
            const auto local = local_extents(m.mesh, global, s);
            std::int64_t held = 0;
            bool good = local.count == rank;
            for (std::int32_t device = 0; device < devices && good; ++device) {
              const auto at = m.mesh.coordinates_of(device);
              std::int64_t mine = 1;
              for (int d = 0; d < rank; ++d) {
                const auto range = dim_range(m.mesh, global, s, d, at);
                good = good && range.begin <= range.end && range.size() <= local[d] && range.end <= global[d];
                for (std::int64_t e = 0; e < global[d]; ++e)
                  good = good && (e >= range.begin && e < range.end) == holds_by_definition(sizes, s, d, global[d], at, e);
                mine *= range.size();
              }
              held += mine;
              ++checked;
            }
            // Each element is there once per group of devices that the splits do not tell apart.
            good = good && held == elements(global) * (devices / m.mesh.size_of(s.split_axes()));
            for (int d = 0; d < rank && good; ++d) good = local[d] * parts_of(m.mesh, s, d) >= global[d];
            if (!good) {
              CAPTURE(text_of(s, rank));
              CAPTURE(std::string(shape_text(global).view()));
              REQUIRE(good);
            }
          }
    }
  CHECK(checked > 100'000);
}

TEST_CASE("the examples of the papers") {
  SUBCASE("the device tensor [[0,2],[1,3]] gives tile (0,1) to device 2 and tile (1,0) to device 1") {
    const std::int32_t order[] = {0, 2, 1, 3};
    const std::int32_t position[] = {0, 2, 1, 3};
    auto mesh = mesh_of({2, 2});
    mesh.order = order;
    mesh.position = position;
    const auto s = split({{0}, {1}});
    const auto global = shape_of({4, 6});
    const auto tile = [&](std::int32_t device) {
      const auto at = mesh.coordinates_of(device);
      return std::pair{dim_range(mesh, global, s, 0, at), dim_range(mesh, global, s, 1, at)};
    };
    CHECK(tile(0) == std::pair{index_range{0, 2}, index_range{0, 3}});
    CHECK(tile(2) == std::pair{index_range{0, 2}, index_range{3, 6}});
    CHECK(tile(1) == std::pair{index_range{2, 4}, index_range{0, 3}});
    CHECK(tile(3) == std::pair{index_range{2, 4}, index_range{3, 6}});
  }
  SUBCASE("a permutation that is not its own inverse") {
    const std::int32_t order[] = {2, 0, 1};
    const std::int32_t position[] = {1, 2, 0};
    auto mesh = mesh_of({3});
    mesh.order = order;
    mesh.position = position;
    const auto global = shape_of({7});
    CHECK(dim_range(mesh, global, split({{0}}), 0, mesh.coordinates_of(2)) == index_range{0, 3});
    CHECK(dim_range(mesh, global, split({{0}}), 0, mesh.coordinates_of(0)) == index_range{3, 6});
    CHECK(dim_range(mesh, global, split({{0}}), 0, mesh.coordinates_of(1)) == index_range{6, 7});
  }
  SUBCASE("15 over 2 is 8; 9 over 2x2 is 3,3,3,0") {
    CHECK(shard_extent(15, 2) == 8);
    CHECK(part_range(15, 2, 1) == index_range{8, 15});
    const auto mesh = mesh_of({2, 2});
    const auto s = split({{0, 1}});
    std::vector<std::int64_t> sizes;
    for (int d = 0; d < 4; ++d) sizes.push_back(dim_range(mesh, shape_of({9}), s, 0, mesh.coordinates_of(d)).size());
    CHECK(sizes == std::vector<std::int64_t>{3, 3, 3, 0});
    CHECK(local_extents(mesh, shape_of({9}), s) == shape_of({3}));
  }
  SUBCASE("more devices than elements, and none at all") {
    CHECK(part_range(2, 4, 1) == index_range{1, 2});
    CHECK(part_range(2, 4, 2).size() == 0);
    CHECK(part_range(2, 4, 3).size() == 0);
    CHECK(part_range(0, 4, 0) == index_range{0, 0});
    CHECK(shard_extent(0, 4) == 0);
  }
  SUBCASE("the major axis of a dim is the first") {
    const auto mesh = mesh_of({2, 4});
    const auto at = mesh.coordinates_of(6);  // (1, 2)
    CHECK(part_index(mesh, split({{0, 1}}), 0, at) == 6);
    CHECK(part_index(mesh, split({{1, 0}}), 0, at) == 5);
    CHECK(parts_of(mesh, split({{1, 0}}), 0) == 8);
  }
}

TEST_CASE("groups partition the devices; their members are numbered row-major") {
  for (const auto& sizes : all_meshes(16, 4))
    for (const bool permuted : {false, true}) {
      const ordered_mesh m(sizes, permuted);
      bool good = true;
      for (axis_mask axes = 0; axes < (axis_mask{1} << sizes.size()); ++axes) {
        const auto members = m.mesh.size_of(axes);
        for (std::int32_t device = 0; device < m.mesh.device_count(); ++device) {
          const auto at = m.mesh.coordinates_of(device);
          const auto own = group_index(m.mesh, axes, at);
          good = good && own >= 0 && own < members && group_member(m.mesh, axes, at, own) == at;
          coordinates previous;
          for (std::int64_t k = 0; k < members; ++k) {
            const auto other = group_member(m.mesh, axes, at, k);
            good = good && group_index(m.mesh, axes, other) == k;
            for (int a = 0; a < other.count; ++a)
              if ((axes & axis_bit(a)) == 0) good = good && other[a] == at[a];
            good = good && (k == 0 || std::lexicographical_compare(previous.begin(), previous.end(), other.begin(), other.end()));
            previous = other;
          }
        }
      }
      CHECK(good);
    }
}

TEST_CASE("the groups of the examples") {
  const auto group_of = [](const mesh_shape& mesh, axis_mask axes, std::int32_t device) {
    std::vector<std::int32_t> group;
    for (std::int64_t k = 0; k < mesh.size_of(axes); ++k)
      group.push_back(mesh.device_at(group_member(mesh, axes, mesh.coordinates_of(device), k)));
    return group;
  };
  const auto two_by_four = mesh_of({2, 4});
  CHECK(group_of(two_by_four, 0b10, 0) == std::vector<std::int32_t>{0, 1, 2, 3});
  CHECK(group_of(two_by_four, 0b10, 6) == std::vector<std::int32_t>{4, 5, 6, 7});
  CHECK(group_of(two_by_four, 0b01, 6) == std::vector<std::int32_t>{2, 6});
  const auto pod = mesh_of({128, 8});
  std::set<std::vector<std::int32_t>> groups;
  for (std::int32_t device = 0; device < 1024; ++device) groups.insert(group_of(pod, 0b01, device));
  CHECK(groups.size() == 8);
  for (const auto& group : groups) {
    CHECK(group.size() == 128);
    for (std::size_t k = 1; k < group.size(); ++k) CHECK(group[k] - group[k - 1] == 8);
  }
  // Fig. 6: groups on Y of the mesh [[0,1],[2,3]]; the logical devices 0 and 1 are {0,2} and {1,3}.
  const auto square = mesh_of({2, 2});
  CHECK(group_of(square, 0b01, 0) == std::vector<std::int32_t>{0, 2});
  CHECK(group_of(square, 0b01, 1) == std::vector<std::int32_t>{1, 3});
  CHECK(group_of(square, 0b10, 2) == std::vector<std::int32_t>{2, 3});
}

TEST_CASE("splits are kept by dim, then major to minor") {
  sharding s;
  s.add_split(2, 1);
  s.add_split(0, 0);
  s.add_split(1, 1);
  CHECK(s.splits.count == 3);
  CHECK(s.splits[0] == axis_use{0, 0});
  CHECK(s.splits[1] == axis_use{2, 1});
  CHECK(s.splits[2] == axis_use{1, 1});
  CHECK(s.split_axes() == 0b111);
  CHECK(s.axes_of(1) == 0b110);
  CHECK(s.is_split(0));
  CHECK(!s.is_split(2));
  CHECK(intersect({0, 4}, {2, 9}) == index_range{2, 4});
  CHECK(intersect({0, 2}, {5, 9}).size() == 0);
}
