// SPDX-License-Identifier: Apache-2.0
// labels: planner exhaustive
// Reductions of uneven extents, from and to every pair of shardings on meshes of up to 8 devices: the path that is planned
// against an exhaustive search among all that never hold more than the larger of both shards.
// GSPMD_ALL_RESHARDS=1 in the environment: more shapes, all of them of rank 3 too, and every path is executed.
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
  std::int64_t dearer_plain = 0;  // the path that is priced states more than the cheapest one
  std::int64_t dearer = 0;        // the path that is emitted does
  std::int64_t beyond = 0;        // it holds more than both ends
  std::int64_t above_price = 0;   // it sends more than the price
  std::int64_t impossible_ones = 0;
  double worst = 1;
  std::string first_dearer;
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
      const auto best = stated[i] / element;

      const auto p = path_of(mesh, global, from.s, to.s);
      std::int64_t sent = 0;
      sharding at = from.s;
      for (const auto& step : p.steps) {
        sent += step_bytes(mesh, global, at, step, 1);
        at = step.to;
        t.beyond += elements(local_extents(mesh, global, at)) > most ? 1 : 0;
      }
      const auto priced = reshard_bytes(mesh, global, from.s, to.s, 1);
      t.impossible_ones += !p.wrong.empty() || sent < best ? 1 : 0;
      t.above_price += sent > priced ? 1 : 0;
      t.dearer_plain += priced > best ? 1 : 0;
      if (sent <= best) continue;
      if (t.dearer++ == 0)
        t.first_dearer = std::string(shape_text(mesh.sizes).view()) + ' ' + std::string(shape_text(global).view()) + ' ' +
                         text_of(from.s, global.count) + " to " + text_of(to.s, global.count) + ':' + steps_of(p, global.count) +
                         " sends " + std::to_string(sent) + ", not " + std::to_string(best);
      t.worst = std::max(t.worst, static_cast<double>(sent) / static_cast<double>(std::max<price>(best, 1)));
    }
  }
}

stated_tally compare_all(const shapes& given) {
  stated_tally t;
  for (const auto& sizes : meshes)
    for (const auto& shape : given) compare_stated(lattice(mesh_of(sizes), shape_of(shape), false), t);
  if (is_complete_run())
    MESSAGE(t.pairs, " pairs, ", t.dearer_plain, " priced higher than the cheapest path, ", t.dearer, " dearer, at worst ",
            t.worst, " times");
  CAPTURE(t.first_dearer);
  CHECK(t.beyond == 0);
  CHECK(t.above_price == 0);
  CHECK(t.impossible_ones == 0);
  CHECK(t.dearer_plain * 20 > t.pairs);  // the search has something to do
  return t;
}

}  // namespace

TEST_CASE("a reduction of uneven extents sends no more bytes than the cheapest path, by what the plan states") {
  shapes given{{9}, {5}, {0}, {100}, {7}, {13}, {9, 5}, {2, 7}, {17, 33}, {5, 6}, {10, 12}, {7, 0}, {3, 3}, {5, 3, 2}};
  if (is_complete_run()) given.insert(given.end(), {{6}, {4, 6}, {11, 2}, {9, 7, 5}, {1, 4, 3}, {6, 10, 14}, {11, 13, 17}});
  const auto t = compare_all(given);
  CAPTURE(t.first_dearer);
  CHECK(t.pairs > 30'000);
  CHECK(t.dearer == 0);
}

TEST_CASE("dims of extent 1 that are split over several axes") {
  const auto t = compare_all({{1}, {1, 9}, {3, 1}, {1, 1}});
  CAPTURE(t.first_dearer);
  CHECK(t.dearer == 0);
}

// What plans state of padded shards is an upper bound of what devices lack, so by that another way may be cheaper.
TEST_CASE("a reduction of uneven extents is little dearer than the cheapest path, by what devices lack") {
  const auto t = check_all(false, reductions::with);
  CAPTURE(t.first_dearer);
  CHECK(t.pairs > 10'000);
  CHECK(t.sum / static_cast<double>(t.pairs) < 0.015);
  CHECK(t.worst <= 1.5);
}

TEST_CASE("uneven reductions with a name") {
  constexpr int x = 0, y = 1, z = 2;
  const auto four = mesh_of({2, 2});
  const auto eight = mesh_of({2, 2, 2});
  SUBCASE("one axis after the other makes less padding") {
    CHECK(steps_between(eight, shape_of({9, 5}), partial({}, 7), split({{y}, {z, x}})) ==
          texts{"reduce_scatter y 25", "reduce_scatter xz 30"});
  }
  SUBCASE("another dim has less padding") {
    CHECK(steps_between(four, shape_of({1, 9}), partial(split({{x}, {}}), axis_bit(y)), {}) ==
          texts{"all_to_all x 5", "all_reduce y 5", "all_gather x 5"});
  }
  SUBCASE("the shards are made smaller before they are added") {
    CHECK(steps_between(eight, shape_of({9, 5}), partial(split({{x}, {}}), axis_bit(z)), split({{x, y}, {}})) ==
          texts{"all_gather x 5", "all_reduce z 15"});
  }
}
