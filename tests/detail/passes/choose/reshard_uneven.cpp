// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// group: layouts
// Reductions of uneven extents, between every pair of shardings on meshes of up to 8 devices. The planned path is
// compared with an exhaustive search among all paths that never hold more than the larger of both shards.
// GSPMD_ALL_RESHARDS=1 in the environment adds shapes, all of rank 3 too, and executes every path.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/layouts.hpp"
#include "support/reshard_paths.hpp"

using namespace reshards;

namespace {

struct stated_tally {
  std::int64_t pairs = 0;
  std::int64_t dearer = 0;   // than the cheapest path
  std::int64_t by_more = 0;  // by more than a tenth
  std::int64_t beyond = 0;   // holds more than both ends
  std::int64_t impossible_ones = 0;
  double worst = 1, sum = 0;
  std::string first_by_more;
};

void compare_stated(const lattice& all, stated_tally& t) {
  const auto& mesh = all.mesh;
  const auto& global = all.global;
  const auto n = all.states.size();
  for (std::size_t j = 0; j < n; ++j) {
    const auto& to = all.states[j];
    std::map<std::int64_t, std::vector<price>> least;  // by the most elements that may be held
    for (std::size_t i = 0; i < n; ++i) {
      const auto& from = all.states[i];
      if ((to.s.partial & ~from.s.partial) != 0 || to.s.partial == from.s.partial) continue;
      ++t.pairs;
      const auto most = std::max(from.largest, to.largest);
      auto& stated = least[most];
      if (stated.empty()) stated = all.stated_to(j, most);
      const auto best = stated[i] / one_elem;

      const auto p = path_of(mesh, global, from.s, to.s);
      std::int64_t sent = 0;
      sharding at = from.s;
      for (const auto& step : p.steps) {
        sent += step_bytes(mesh, global, at, step, 1);
        at = step.to;
        t.beyond += elements(local_extents(mesh, global, at)) > most ? 1 : 0;
      }
      t.impossible_ones += !p.wrong.empty() || sent < best ? 1 : 0;
      t.dearer += sent > best ? 1 : 0;
      const double ratio = static_cast<double>(sent) / static_cast<double>(std::max<price>(best, 1));
      t.sum += ratio;
      t.worst = std::max(t.worst, ratio);
      if (ratio > 1.1 && t.by_more++ == 0)
        t.first_by_more = std::string(shape_text(mesh.sizes).view()) + ' ' + std::string(shape_text(global).view()) + ' ' +
                          text_of(from.s, global.count) + " to " + text_of(to.s, global.count) + ':' + steps_of(p, global.count) +
                          " sends " + std::to_string(sent) + ", not " + std::to_string(best);
    }
  }
}

stated_tally compare_all(const shapes& given) {
  stated_tally t;
  for (const auto& sizes : meshes)
    for (const auto& shape : given) compare_stated(lattice(mesh_of(sizes), shape_of(shape), false), t);
  if (is_complete_run())
    MESSAGE(t.pairs, " pairs, ", t.dearer, " dearer, ", t.by_more, " by more than a tenth, at worst ", t.worst,
            " times, on average ", t.sum / static_cast<double>(t.pairs));
  CHECK(t.beyond == 0);
  CHECK(t.impossible_ones == 0);
  return t;
}

}  // namespace

TEST_CASE("a reduction of uneven extents is hardly dearer than the cheapest path, by what the plan states") {
  shapes given{{100}, {127}, {127, 65}, {33, 100}};
  if (is_complete_run()) given.insert(given.end(), {{1000, 37}, {37, 65, 129}});
  const auto t = compare_all(given);
  CAPTURE(t.first_by_more);
  CHECK(t.pairs > 5'000);
  CHECK(t.by_more * 50 < t.pairs);
  CHECK(t.worst < 1.3);
  CHECK(t.sum < 1.005 * static_cast<double>(t.pairs));
}

TEST_CASE("nor of few elements in many parts, on average") {
  shapes given{{9},    {5},      {0},    {7},    {13},      {9, 5}, {2, 7}, {17, 33},
               {5, 6}, {10, 12}, {7, 0}, {3, 3}, {5, 3, 2}, {1},    {1, 9}, {3, 1}};
  if (is_complete_run()) given.insert(given.end(), {{6}, {4, 6}, {11, 2}, {9, 7, 5}, {1, 4, 3}, {6, 10, 14}, {11, 13, 17}});
  const auto t = compare_all(given);
  CAPTURE(t.first_by_more);
  CHECK(t.pairs > 30'000);
  CHECK(t.by_more * 20 < t.pairs);
  CHECK(t.worst < 2.5);
  CHECK(t.sum < 1.015 * static_cast<double>(t.pairs));
}

// Plans state an upper bound of the elements that devices lack of padded shards. Another path may be cheaper according
// to this bound.
TEST_CASE("a reduction of uneven extents is little dearer than the cheapest path, by what devices lack") {
  const auto t = check_all(false, reductions::with);
  CAPTURE(t.first_dearer);
  CHECK(t.pairs > 10'000);
  CHECK(t.sum / static_cast<double>(t.pairs) < 0.02);
  CHECK(t.worst <= 2);
}

TEST_CASE("uneven reductions with a name") {
  constexpr int x = 0, y = 1, z = 2;
  const auto eight = mesh_of({2, 2, 2});
  SUBCASE("one axis after the other makes less padding") {
    CHECK(steps_between(eight, shape_of({9, 5}), partial({}, 7), split({{y}, {z, x}})) ==
          texts{"reduce_scatter y 25", "reduce_scatter xz 30"});
  }
  SUBCASE("the shards are made smaller before they are added") {
    CHECK(steps_between(eight, shape_of({9, 5}), partial(split({{x}, {}}), axis_bit(z)), split({{x, y}, {}})) ==
          texts{"all_gather x 5", "all_reduce z 15"});
  }
}
