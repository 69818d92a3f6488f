// SPDX-License-Identifier: Apache-2.0
// timeout: 600
#include <doctest/doctest.h>

#include <cstdio>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "support/run_random.hpp"

// The partitioned program equals the single-device one. GSPMD_SEED and GSPMD_PROGRAMS choose other programs and more of them.

TEST_CASE("random programs on simulated devices equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 10000);
  std::uint64_t collectives = 0, large_meshes = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    const auto plan = gspmd::detail::make_plan(program.g, program.mesh);
    const gspmd::detail::plan_view view(plan);
    for (const auto& s : plan.steps) collectives += s.bytes_sent > 0 ? 1 : 0;
    large_meshes += program.device_count() > 8 ? 1 : 0;
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  std::printf("random programs: seeds %llu to %llu, %llu collectives, %llu on more than 8 devices\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
              static_cast<unsigned long long>(collectives), static_cast<unsigned long long>(large_meshes));
  CHECK(collectives > count / 4);
  CHECK(large_meshes > count / 5);
}

TEST_CASE("random programs on threads equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::setting("GSPMD_PROGRAMS", 10000) / 10;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    const auto plan = gspmd::detail::make_plan(program.g, program.mesh);
    const gspmd::detail::plan_view view(plan);
    std::vector<std::string> wrong(static_cast<std::size_t>(program.device_count()));
    launch(gspmd::threads{}, program.device_count(),
           [&](auto& comm) { wrong[static_cast<std::size_t>(comm.device(0))] = reference::run_and_check(comm, program, view); });
    for (const auto& message : wrong)
      if (!message.empty()) FAIL_CHECK(message);
  }
}
