// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads
// group: random
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "support/random_views.hpp"
#include "support/run_random_on_threads.hpp"

// Random programs whose values are annotated by the axes of two or three meshes over the same devices.

using namespace gspmd;

TEST_CASE("random programs on two or three meshes over the same devices equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(3000);
  std::uint64_t collectives = 0, by_other_meshes = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const auto a = reference::with_views(seed);
    if (!a.wrong.empty()) FAIL_CHECK(a.wrong);
    by_other_meshes += a.by_other_meshes > 0 ? 1 : 0;
    const auto plan = detail::plan_at_run_time(a.program.g, a.program.mesh, {});
    const detail::plan_view view(plan);
    for (const auto& s : plan.steps) collectives += s.bytes_sent > 0 ? 1 : 0;
    simulated_communicator comm(a.program.device_count());
    const auto wrong = reference::run_and_check(comm, a.program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 10 != 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(a.program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
  std::printf("random views: seeds %llu to %llu, %llu with annotations by a second mesh, %llu collectives\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
              static_cast<unsigned long long>(by_other_meshes), static_cast<unsigned long long>(collectives));
  CHECK(by_other_meshes > count / 2);
  CHECK(collectives > count / 2);
}
