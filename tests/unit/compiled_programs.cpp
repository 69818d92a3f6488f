// SPDX-License-Identifier: Apache-2.0
// timeout: 120
#include <doctest/doctest.h>

#include <cstdio>
#include <utility>

#include "support/run_compiled.hpp"

// Random programs run by the compiled executor: loops, conditionals and gradients, uneven shards, meshes of 2 to 8 devices.

namespace {

using namespace random_callables;

template <unsigned... Seed>
tally check(std::integer_sequence<unsigned, Seed...>) {
  tally all;
  const auto one = [](const std::string& wrong) { CHECK(wrong == ""); };
  (one(wrong_run_here<program<Seed, Seed % 6>>(all)), ...);
  return all;
}

}  // namespace

TEST_CASE("compiled random programs on simulated devices and on threads equal the naive reference") {
#ifdef __clang__  // one compiler compiles them all
  constexpr unsigned count = 11;
#else
  constexpr unsigned count = 15;
#endif
  const tally all = check(std::make_integer_sequence<unsigned, count>{});
  std::printf("compiled programs: %u, with %d loops, %d conditionals, %d collectives, %d of them in loops\n", count, all.loops,
              all.conditionals, all.collectives, all.in_loops);
  CHECK(all.loops >= static_cast<int>(count / 11));
  CHECK(all.conditionals >= static_cast<int>(count / 11));
  CHECK(all.collectives > static_cast<int>(2 * count));
}
