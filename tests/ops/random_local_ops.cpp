// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include "gspmd/comm/simulated.hpp"
#include "support/run_random_on_threads.hpp"

// Random programs with operators of the user's own among the others: loops, fused operators, partial values around
// them.

TEST_CASE("random programs with local_ops equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(4000);
  reference::random_options options;
  options.local_ops = true;
  std::uint64_t local = 0, in_bodies = 0, partial = 0, of_two_results = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    const gspmd::detail::plan_view view(plan);
    for (const auto& s : plan.steps) {
      if (!gspmd::detail::is<gspmd::detail::kernels::local>(s)) continue;
      ++local;
      in_bodies += s.times > 1 ? 1 : 0;
      for (int r = 0; r < s.results.count; ++r) partial += view.result(s, r).layout.partial != 0 ? 1 : 0;
      of_two_results += s.results.count == 2 ? 1 : 0;
    }
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 20 != 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
  CHECK(local > count / 2);
  CHECK(in_bodies > count / 100);
  CHECK(partial > count / 20);
  CHECK(of_two_results > count / 20);
}
