// SPDX-License-Identifier: Apache-2.0
// ranks: 2 3 4 8
// two nodes: 4
// timeout: 300
// group: run
#include <doctest/doctest.h>

#include <utility>

#include "gspmd/mpi.hpp"
#include "support/random_views.hpp"
#include "support/run_random_over_mpi.hpp"

// Every rank makes the same programs from the same seeds. The number of devices is the number of ranks.
TEST_CASE("random programs over MPI equal the naive reference") {
  reference::random_options options;
  MPI_Comm_size(MPI_COMM_WORLD, &options.devices);
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs_on(options.devices, 200);
  reference::mpi_lots lots({{}, {.small_shard_bytes = 0}});  // the second option reads shards in place, in shared memory
  for (auto seed = first; seed < first + count; ++seed) {
    options.lookups = seed % 2 == 1;  // gathers, scatters, scans, sorts and top_k, for all element types
    const auto wrong = lots.add(reference::random_program(seed, options));
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  CHECK(lots.run() == "");
}

TEST_CASE("random programs with limits on gathers over MPI") {
  reference::random_options options;
  options.limit_gathers = true;
  options.einsums = 60;
  options.max_operators = 8;
  MPI_Comm_size(MPI_COMM_WORLD, &options.devices);
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = 5 * reference::programs_on(options.devices, 200);
  reference::mpi_lots lots({{.shared_memory = true, .largest_count = 64}, {.shared_memory = false, .largest_count = 64}});
  std::uint64_t windows = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    std::uint64_t here = 0;
    for (const auto& s : plan.steps) here += gspmd::detail::is<gspmd::detail::kernels::contract_round_ring>(s) ? 1 : 0;
    if (here == 0) continue;
    windows += here;
    const auto wrong = lots.add(std::move(program));
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  CHECK(lots.run() == "");
  CHECK(windows > count / 30);
}

TEST_CASE("random programs with local_ops over MPI") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  reference::random_options options;
  options.local_ops = true;
  options.devices = comm.device_count();
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs_on(options.devices, 200);
  std::uint64_t local = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    for (const auto& s : plan.steps) local += gspmd::detail::is<gspmd::detail::kernels::local>(s) ? 1 : 0;
    const auto wrong = reference::run_and_check(comm, program, gspmd::detail::plan_view(plan));
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  CHECK(local > count / 2);
}

TEST_CASE("random programs with gathers, scatters and scans, and with windows, over MPI") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs_on(comm.device_count(), 200) / 2;
  for (const bool has_windows : {false, true}) {
    reference::random_options options;
    options.lookups = !has_windows;
    options.windows = has_windows;
    options.devices = comm.device_count();
    for (auto seed = first; seed < first + count; ++seed) {
      const reference::random_program program(seed, options);
      const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
      const auto wrong = reference::run_and_check(comm, program, gspmd::detail::plan_view(plan));
      if (!wrong.empty()) FAIL_CHECK(wrong);
    }
  }
}

TEST_CASE("random programs on several meshes of the same ranks") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  reference::random_options options;
  options.devices = comm.device_count();
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs_on(options.devices, 200);
  std::uint64_t by_other_meshes = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const auto a = reference::with_views(seed, options);
    if (!a.wrong.empty()) FAIL_CHECK(a.wrong);
    by_other_meshes += a.by_other_meshes > 0 ? 1 : 0;
    const auto plan = gspmd::detail::plan_at_run_time(a.program.g, a.program.mesh, {});
    const auto wrong = reference::run_and_check(comm, a.program, gspmd::detail::plan_view(plan));
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  CHECK(by_other_meshes > count / 2);
}
