// SPDX-License-Identifier: Apache-2.0
// timeout: 120
// group: compiled
// alone: yes
#include <doctest/doctest.h>

#include <cstdio>
#include <utility>

#include "support/run_compiled.hpp"

// Random programs run by the compiled executor: loops, conditionals and gradients, uneven shards, meshes of 2 to 8
// devices.

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
  // The seeds with the most content among the first 44: all conditionals and all collectives in loops. Each mesh has at
  // least one of these seeds.
#ifdef __clang__  // one compiler compiles them all
  const tally all = check(std::integer_sequence<unsigned, 3, 4, 8, 11, 15, 24, 30, 31, 36>{});
#else
  const tally all = check(std::integer_sequence<unsigned, 1, 2, 3, 4, 8, 11, 15, 24, 30, 31, 32, 35, 36, 39, 40>{});
#endif
  std::printf("compiled programs: %d loops, %d conditionals, %d collectives, %d of them in loops\n", all.loops, all.conditionals,
              all.collectives, all.in_loops);
  CHECK(all.loops >= 5);
  CHECK(all.conditionals >= 5);
  CHECK(all.collectives >= 40);
  CHECK(all.in_loops >= 3);
}
