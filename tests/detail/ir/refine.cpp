// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
#include <doctest/doctest.h>

#include "gspmd/detail/ir/refine.hpp"
#include "support/layouts.hpp"

using namespace layouts;

TEST_CASE("refine takes what is open and free, and says whether it did") {
  const auto shape = shape_of({8, 8, 1});
  const auto take = [&](annotation& target, const sharding& from) { return refine(target, from.splits, shape); };
  annotation s = open({}, 0b111);
  CHECK(take(s, split({{1}, {}})));
  CHECK(s.layout.splits == split({{1}}).splits);
  CHECK(!take(s, split({{1}, {}})));      // nothing new
  CHECK(!take(s, split({{}, {1}})));      // the axis is taken
  CHECK(!take(s, split({{0}, {}})));      // the dim is split otherwise
  CHECK(!take(s, split({{}, {}, {0}})));  // an extent of 1
  CHECK(take(s, split({{}, {0}})));
  CHECK(s.layout.splits == split({{1}, {0}}).splits);

  annotation closed = split({{1}, {}});
  CHECK(!take(closed, split({{}, {0}})));
  CHECK(closed.layout == split({{1}, {}}));
  annotation half = open(split({{1}, {}}), 0b10);
  CHECK(take(half, split({{1}, {0}})));
  CHECK(half.layout.splits == split({{1}, {0}}).splits);
  annotation with_sum = open(partial({}, 0b1), 0b11);
  CHECK(!take(with_sum, split({{0}, {}})));  // a partial axis cannot split
  CHECK(take(with_sum, split({{1}, {}})));
  CHECK(with_sum.layout.partial == 0b1);
}
