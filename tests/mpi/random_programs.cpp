// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// ranks: 2 3 4 8
// timeout: 300
// group: run
#include <doctest/doctest.h>

#include "gspmd/comm/mpi.hpp"
#include "support/run_random.hpp"

// Every rank makes the same programs from the same seeds, with as many devices as there are ranks.
TEST_CASE("random programs over MPI equal the naive reference") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  reference::random_options options;
  options.devices = comm.device_count();
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 200);
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::make_plan(program.g, program.mesh);
    const gspmd::detail::plan_view view(plan);
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
}

TEST_CASE("random programs with limits on gathers over MPI") {
  reference::random_options options;
  options.limit_gathers = true;
  options.einsums = 60;
  options.max_operators = 8;
  for (const bool shares_memory : {true, false}) {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, {shares_memory, 64});
    options.devices = comm.device_count();
    const auto first = reference::setting("GSPMD_SEED", 1);
    const auto count = 5 * reference::setting("GSPMD_PROGRAMS", 200);
    std::uint64_t windows = 0;
    for (auto seed = first; seed < first + count; ++seed) {
      const reference::random_program program(seed, options);
      const auto plan = gspmd::detail::make_plan(program.g, program.mesh);
      const gspmd::detail::plan_view view(plan);
      std::uint64_t here = 0;
      for (const auto& s : plan.steps) here += s.what == gspmd::detail::action::windowed ? 1 : 0;
      if (here == 0) continue;
      windows += here;
      const auto wrong = reference::run_and_check(comm, program, view);
      if (!wrong.empty()) FAIL_CHECK(wrong);
    }
    CHECK(windows > count / 30);
  }
}
