// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
// The exchange of movements with a map: the closed form, compared with a count of the parts.
#include <doctest/doctest.h>

#include "gspmd/detail/ir/map_traffic.hpp"
#include "support/collective_oracle.hpp"

using namespace oracle;

namespace {

constexpr continuation all_continuations[]{continuation::none, continuation::round, continuation::edge, continuation::reflect,
                                           continuation::symmetric};

struct compared {
  std::int64_t maps = 0, closed = 0, sending = 0;

  /// Compares along dim 1 of three dims; dims 0 and 1 are split.
  void compare(const mesh_shape& mesh, std::int64_t from, std::int64_t to, const index_map& map) {
    const extents operand = shape_of({5, from, 3}), result = shape_of({5, to, 3});
    const sharding s = split({{1, 0}, {0, 1}, {2, 1}});
    const auto some = traffic_of(mesh, operand, result, s, map), counted = counted_traffic(mesh, operand, result, s, map);
    CAPTURE(from);
    CAPTURE(to);
    CAPTURE(map.dims[0].from_first);
    CAPTURE(map.low);
    CAPTURE(map.high);
    CAPTURE(static_cast<int>(map.dims[0].beyond));
    CAPTURE(mesh.sizes[0]);
    CAPTURE(mesh.sizes[2]);
    REQUIRE(some.sent == counted.sent);
    REQUIRE(some.received == counted.received);
    REQUIRE(some.messages == counted.messages);
    REQUIRE(some.axes == counted.axes);
    ++maps;
    sending += some.sent > 0 ? 1 : 0;
  }
  void note(span<const dim_map> of, std::int64_t from, std::int64_t to, std::int64_t parts) {
    closed += shift_traffic(of, from, to, parts).is_one ? 1 : 0;
  }
};

}  // namespace

TEST_CASE("shifts, slices and paddings of one dim: closed form and counted parts agree") {
  compared all;
  for (const int major : {1, 2, 3, 4})
    for (const int minor : {1, 2}) {
      const auto mesh = mesh_of({major, 2, minor});
      for (std::int64_t from = 0; from <= 17; ++from)
        for (std::int64_t to = from < 2 ? 0 : from - 2; to <= from + 1; ++to)
          for (std::int64_t offset = -from - 1; offset <= from + 1; ++offset)
            for (const auto beyond : all_continuations) {
              if (from == 0 && beyond != continuation::none) continue;
              index_map map;
              map.dims.push_back(dim_map::affine(1, 1, offset, 1));
              map.dims[0].beyond = beyond;
              all.compare(mesh, from, to, map);
              all.note({map.dims.items, 1}, from, to, std::int64_t{major} * minor);
            }
    }
  CHECK(all.closed > 1000);
  CHECK(all.closed < all.maps);
  CHECK(all.sending > 1000);
}

TEST_CASE("margins: closed form and counted parts agree, each end with a continuation of its own") {
  compared all;
  for (const int parts : {1, 2, 3, 5}) {
    const auto mesh = mesh_of({parts, 2, 1});
    for (std::int64_t extent = 1; extent <= 11; ++extent)
      for (std::int64_t low = 0; low <= 4; ++low)
        for (std::int64_t high = 0; high <= 4; ++high)
          for (const auto before : all_continuations)
            for (const auto behind : all_continuations) {
              index_map map;
              map.dims.push_back(dim_map{1, before});
              map.dims.push_back(dim_map{1, behind});
              map.low = low;
              map.high = high;
              if (!map.has_margins()) continue;
              all.compare(mesh, extent, (low + high) * parts, map);
              all.note(margin_shifts(map).items, extent, extent, parts);
            }
  }
  CHECK(all.closed > 1000);
  CHECK(all.closed < all.maps);
  CHECK(all.sending > 1000);
}

// Bytes sent for tiles in `parts` parts. A count with one step per part of the mesh would not be a constant expression.
constexpr std::int64_t sent_by_tiles(std::int64_t parts) {
  const dim_map tiles = dim_map::tile_of(0, padded_window{3, 2, 1, 1}.window(), 7);
  return dim_traffic({&tiles, 1}, 13, 7, parts).sent.leaves();
}
static_assert(sent_by_tiles(13) == 2);
static_assert(sent_by_tiles(1'000'003) == sent_by_tiles(13));
