// SPDX-License-Identifier: Apache-2.0
// labels: planner
#include <doctest/doctest.h>

#include <map>

#include "gspmd/detail/ir/merge.hpp"
#include "support/layouts.hpp"

using namespace layouts;

namespace {

/// All shardings of one rank on one mesh, and for each dim of each the number of its offsets: equal numbers, equal shard
/// offsets on every device. Number 0 is "not sharded" (every offset is 0).
struct offset_table {
  std::vector<sharding> shardings;
  std::vector<std::vector<int>> offsets;

  offset_table(const mesh_shape& mesh, int rank) : shardings(all_shardings(mesh, rank)) {
    const std::int64_t extent = 2 * mesh.device_count();  // a multiple of every number of parts: equal offsets, equal cuts
    extents global;
    for (int d = 0; d < rank; ++d) global.push_back(extent);
    std::map<std::vector<std::int64_t>, int> known;
    known[std::vector<std::int64_t>(static_cast<std::size_t>(mesh.device_count()), 0)] = 0;
    for (const auto& s : shardings) {
      offsets.emplace_back();
      for (int d = 0; d < rank; ++d) {
        std::vector<std::int64_t> by_device;
        for (std::int64_t device = 0; device < mesh.device_count(); ++device)
          by_device.push_back(dim_range(mesh, global, s, d, mesh.coordinates_of(device)).begin);
        offsets.back().push_back(known.emplace(by_device, static_cast<int>(known.size())).first->second);
      }
    }
  }
  /// Offset(s, d, i) == Offset(t, d, i) on every device d for every dim i that t shards.
  [[nodiscard]] bool agrees(std::size_t s, std::size_t t) const {
    for (std::size_t d = 0; d < offsets[t].size(); ++d)
      if (offsets[t][d] != 0 && offsets[s][d] != offsets[t][d]) return false;
    return true;
  }
  [[nodiscard]] std::size_t find(const sharding& s) const {
    std::size_t i = 0;
    while (i < shardings.size() && !(shardings[i].splits == s.splits)) ++i;
    return i;
  }
};

/// Meshes up to 8 devices: with up to 3 axes to rank 3, with 4 axes to rank 1 and a few to rank 2.
template <class Visit>
void for_each_table(Visit visit) {
  for (const auto& sizes : all_meshes(8, 4)) {
    const auto mesh = mesh_of(sizes);
    for (int rank = 0; rank <= (sizes.size() < 4 ? 3 : 1); ++rank) visit(mesh, rank, offset_table(mesh, rank));
  }
  for (const auto& sizes : {std::vector<int>{2, 2, 2, 1}, {2, 1, 1, 3}}) {
    const auto mesh = mesh_of(sizes);
    visit(mesh, 2, offset_table(mesh, 2));
  }
}

}  // namespace

TEST_CASE("is_refinement is the definition of GSPMD 3.5, for all pairs of shardings") {
  for_each_table([](const mesh_shape& mesh, int rank, const offset_table& t) {
    std::int64_t wrong = 0;
    for (std::size_t a = 0; a < t.shardings.size(); ++a)
      for (std::size_t b = 0; b < t.shardings.size(); ++b)
        if (is_refinement(mesh, t.shardings[a], t.shardings[b]) != t.agrees(a, b)) {
          if (wrong++ == 0) MESSAGE(text_of(t.shardings[a], rank), " and ", text_of(t.shardings[b], rank));
        }
    CHECK(wrong == 0);
  });
}

TEST_CASE("merge finds a merged sharding exactly when there is one, and the least one") {
  for_each_table([](const mesh_shape& mesh, int rank, const offset_table& t) {
    std::int64_t wrong = 0;
    for (std::size_t a = 0; a < t.shardings.size(); ++a)
      for (std::size_t b = 0; b < t.shardings.size(); ++b) {
        const auto m = merge(mesh, t.shardings[a], t.shardings[b]);
        const std::size_t found = m.compatible ? t.find(m.result) : 0;
        bool good = !m.compatible || (found < t.shardings.size() && t.agrees(found, a) && t.agrees(found, b));
        for (std::size_t s = 0; s < t.shardings.size() && good; ++s)
          if (t.agrees(s, a) && t.agrees(s, b)) good = m.compatible && t.agrees(s, found);
        if (!good && wrong++ == 0) MESSAGE(text_of(t.shardings[a], rank), " and ", text_of(t.shardings[b], rank));
      }
    CHECK(wrong == 0);
  });
}

TEST_CASE("merge does not depend on the order, but for axes of size 1") {
  for_each_table([](const mesh_shape& mesh, int, const offset_table& t) {
    std::int64_t wrong = 0;
    for (const auto& a : t.shardings)
      for (const auto& b : t.shardings) {
        const auto ab = merge(mesh, a, b);
        const auto ba = merge(mesh, b, a);
        wrong += ab.compatible != ba.compatible;
        if (ab.compatible && ba.compatible)
          wrong += !is_refinement(mesh, ab.result, ba.result) || !is_refinement(mesh, ba.result, ab.result);
      }
    CHECK(wrong == 0);
  });
}

TEST_CASE("is_refinement is an order whose least element is the replicated sharding") {
  for_each_table([](const mesh_shape& mesh, int, const offset_table& t) {
    const auto n = t.shardings.size();
    std::vector<char> finer(n * n);
    for (std::size_t a = 0; a < n; ++a)
      for (std::size_t b = 0; b < n; ++b) finer[a * n + b] = is_refinement(mesh, t.shardings[a], t.shardings[b]);
    std::int64_t wrong = 0;
    for (std::size_t a = 0; a < n; ++a) {
      wrong += finer[a * n + a] == 0;
      wrong += finer[a * n] == 0;  // all_shardings begins with the replicated one
      for (std::size_t b = 0; b < n; ++b) {
        if (finer[a * n + b] == 0) continue;
        wrong += finer[b * n + a] != 0 && t.offsets[a] != t.offsets[b];
        for (std::size_t c = 0; c < n; ++c) wrong += finer[b * n + c] != 0 && finer[a * n + c] == 0;
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("examples") {
  const auto mesh = mesh_of({2, 2, 1});
  const auto fig3 = merge(mesh, split({{1}, {}}), split({{}, {0}}));
  CHECK(fig3.compatible);
  CHECK(fig3.result.splits == split({{1}, {0}}).splits);
  CHECK(!merge(mesh, split({{0}, {}}), split({{}, {0}})).compatible);
  CHECK(!merge(mesh, split({{0}, {}}), split({{0, 1}, {}})).compatible);  // other offsets in dim 0
  CHECK(!merge(mesh, split({{0, 1}, {}}), split({{1, 0}, {}})).compatible);
  CHECK(merge(mesh, split({{2}, {}}), split({{}, {2}})).compatible);  // an axis of size 1 cuts nothing
  CHECK(is_refinement(mesh, split({{0}, {1}}), split({{0}, {}})));
  CHECK(!is_refinement(mesh, split({{0, 1}, {}}), split({{0}, {}})));
  CHECK(same_cuts(mesh, split({{2, 0}}), split({{0}}), 0));
  CHECK(!same_cuts(mesh, split({{1}}), split({{0}}), 0));
}

TEST_CASE("refine takes what is open and free, and says whether it did") {
  const auto shape = shape_of({8, 8, 1});
  const auto take = [&](sharding& target, const sharding& from) { return refine(target, from.splits, shape); };
  sharding s = open({}, 0b111);
  CHECK(take(s, split({{1}, {}})));
  CHECK(s.splits == split({{1}}).splits);
  CHECK(!take(s, split({{1}, {}})));      // nothing new
  CHECK(!take(s, split({{}, {1}})));      // the axis is taken
  CHECK(!take(s, split({{0}, {}})));      // the dim is split otherwise
  CHECK(!take(s, split({{}, {}, {0}})));  // an extent of 1
  CHECK(take(s, split({{}, {0}})));
  CHECK(s.splits == split({{1}, {0}}).splits);

  sharding closed = split({{1}, {}});
  CHECK(!take(closed, split({{}, {0}})));
  CHECK(closed == split({{1}, {}}));
  sharding half = open(split({{1}, {}}), 0b10);
  CHECK(take(half, split({{1}, {0}})));
  CHECK(half.splits == split({{1}, {0}}).splits);
  sharding with_sum = open(partial({}, 0b1), 0b11);
  CHECK(!take(with_sum, split({{0}, {}})));  // a partial axis cannot split
  CHECK(take(with_sum, split({{1}, {}})));
  CHECK(with_sum.partial == 0b1);
}
