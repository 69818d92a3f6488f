// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/program/dtype.hpp"
#include "support/run_random_on_threads.hpp"

// Random programs with gathers, scatters, scans and largest elements among the other operators, in loops too. The
// longest run so far: GSPMD_SEED=1000001 GSPMD_PROGRAMS=100000, on 2026-11-23.

TEST_CASE("random programs with gathers, scatters and scans equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(3000);
  reference::random_options options;
  options.lookups = true;
  bool looked_up[gspmd::dtype_count]{};  // the element types that were looked up
  std::uint64_t lookups = 0, in_bodies = 0, partial = 0, exchanges = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    const gspmd::detail::plan_view view(plan);
    using gspmd::detail::is;
    namespace kernels = gspmd::detail::kernels;
    for (const auto& s : plan.steps) {
      if (!is<kernels::gather>(s) && !is<kernels::scatter>(s) && !is<kernels::scatter_set>(s) && !is<kernels::scan>(s) &&
          !is<kernels::top_k>(s))
        continue;
      ++lookups;
      looked_up[static_cast<std::size_t>(view.operand(s, 0).type)] = true;
      in_bodies += s.times > 1 ? 1 : 0;
      partial += view.result(s).layout.partial != 0 ? 1 : 0;
      exchanges += (is<kernels::scan>(s) || is<kernels::top_k>(s)) && s.operands.count == 2 ? 1 : 0;
    }
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 19 != 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
  if (count >= 3000)
    CHECK(std::all_of(std::begin(looked_up), std::end(looked_up), [](bool was) { return was; }));  // sanitizers run fewer
  CHECK(lookups > count / 2);
  CHECK(in_bodies > count / 200);
  CHECK(partial > count / 50);
  CHECK(exchanges > count / 50);
}
