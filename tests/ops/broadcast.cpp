// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// broadcast_in_dim with its dims in any order equals a naive loop, on random meshes and shardings.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/any_backend.hpp"
#include "support/random_split.hpp"

namespace {

using namespace gspmd;
using reference::any_backend;
using reference::draws;
using reference::random_split;
using std::int64_t;

void try_once(std::uint64_t seed, const dynamic::mesh& m, const any_backend& backend) {
  CAPTURE(seed);
  draws r{std::mt19937_64(seed)};
  const int64_t extents[] = {1, 2, 3, 5, 4, 0};
  std::vector<int64_t> to(static_cast<std::size_t>(r.below(4)) + 1), from;
  for (auto& e : to) e = extents[r.below(seed % 10 == 0 ? 6 : 5)];
  std::vector<int> dims;
  for (int d = 0; d < static_cast<int>(to.size()); ++d)
    if (r.below(4) != 0) dims.push_back(d);
  std::shuffle(dims.begin(), dims.end(), r.engine);
  for (const int d : dims) from.push_back(r.below(4) == 0 ? 1 : to[static_cast<std::size_t>(d)]);

  int64_t count = 1, wide = 1;
  for (const auto e : from) count *= e;
  for (const auto e : to) wide *= e;
  std::vector<double> x(static_cast<std::size_t>(count) + 1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i) + 1;

  dynamic::builder b(m);
  b.graph().allow_replication = true;  // a stretched dim may be split
  const value in = b.input(dynamic::input<double>(from, random_split(r, m, from.size())));
  detail::inline_vec<std::int8_t, detail::max_rank> places;
  for (const int d : dims) places.push_back(static_cast<std::int8_t>(d));
  const auto here = detail::location::current();
  const value y(&b.graph(), detail::add_broadcast(b.graph(), in.id(), detail::extents_of(to), places, here));
  const value made = r.below(2) == 0 ? y : y + 0.0;  // by itself, and read by a loop
  if (r.below(2) == 0) b.output(b.reshard(made, random_split(r, m, to.size())));
  else b.output(made);
  const auto results = backend.run(b.compile(), std::vector<const void*>{x.data()});

  bool same = true;
  for (int64_t k = 0; k < wide; ++k) {
    std::vector<int64_t> at(to.size());
    int64_t rest = k;
    for (std::size_t d = to.size(); d-- > 0; rest /= to[d]) at[d] = rest % to[d];
    int64_t offset = 0;
    for (std::size_t d = 0; d < from.size(); ++d)
      offset = offset * from[d] + (from[d] == 1 ? 0 : at[static_cast<std::size_t>(dims[d])]);
    same = same && results[0].data<double>()[k] == x[static_cast<std::size_t>(offset)];
  }
  CHECK(same);
}

}  // namespace

TEST_CASE("broadcast_in_dim: dims in any order") {
  const dynamic::mesh one({{"x", 1}}), four({{"x", 4}}), grid({{"x", 2}, {"y", 3}});
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    try_once(seed, one, serial{});
    try_once(seed, four, simulated{});
    try_once(seed, grid, simulated{});
    if (seed % 10 == 0) try_once(seed, grid, threads{});
  }
}

TEST_CASE("broadcast_in_dim: out of order on shards nothing is sent, and a dim is named once") {
  using step = compile<[](auto x) {
    return broadcast_in_dim(x, {4, 6, 8}, {2, 0});
  },
                       mesh<axis<"x", 2>, axis<"y", 2>>, input<float, shape<8, 4>, split<"x", "y">>>;
  static_assert(step::collectives == collectives{});
  static_assert(step::output_shard<0>::local_extents == shape<2, 6, 4>::value);
  std::string text;
  try {
    dynamic::compile(
        [](value x) {
          return broadcast_in_dim(x, {3, 3}, {1, 1});
        },
        dynamic::mesh({{"x", 2}}), dynamic::input<float>({3, 3}, {"", ""}));
  } catch (const error& e) {
    text = e.what();
  }
  CHECK(text.find("names dim 1 of the result twice") != std::string::npos);
}
