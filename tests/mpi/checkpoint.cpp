// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 3 4
// two nodes: 4
// group: run
#include "gspmd/io/checkpoint.hpp"

#include <csignal>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <doctest/doctest.h>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/mpi.hpp"
#include "support/common_directory.hpp"
#include "support/error_of.hpp"
#include "support/layouts.hpp"
#include "support/stored_states.hpp"

using namespace gspmd;
using namespace stored_states;
using caught::contains;
using namespace common_files;

TEST_CASE("saved on all ranks, restored on any number of them, on simulated devices, and the other way") {
  const common_directory directory("mpi");
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD);
  {
    mpi_communicator comm(MPI_COMM_WORLD);
    const auto rows = by_rows(ranks);
    const laid_out<std::int8_t> whole(layouts::mesh_of({ranks}), layouts::shape_of({3}), {});
    auto x = rows.array(comm);
    auto r = whole.array(comm);
    rows.fill(comm, x);
    whole.fill(comm, r);
    checkpoint state;
    state.add("x", x);
    state.add("r", r);
    state.save(comm, directory.path, 1, {.block_bytes = 56});
  }
  for_fewer_ranks([&](auto& comm, const auto& layout) {
    auto x = layout.array(comm);
    checkpoint state;
    state.add("x", x);
    CHECK(state.restore_latest(comm, directory.path) == 1);
    CHECK(layout.wrong(comm, x) == 0);
  });
  if (me == 0) {
    simulated_communicator five(5);
    const auto columns = by_columns(5);
    auto x = columns.array(five);
    checkpoint state;
    state.add("x", x);
    state.restore(five, directory.path, 1);
    CHECK(columns.wrong(five, x) == 0);
    columns.fill(five, x, 8);
    state.save(five, directory.path, 2);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  mpi_communicator comm(MPI_COMM_WORLD);
  const auto rows = by_rows(ranks);
  auto x = rows.array(comm);
  checkpoint state;
  state.add("x", x);
  CHECK(state.restore_latest(comm, directory.path) == 2);
  CHECK(rows.wrong(comm, x, 8) == 0);
  CHECK(!state.restore_latest(comm, directory.path + "/none"));
}

TEST_CASE("an error of one rank is that of all, and nothing is changed nor left") {
  const common_directory directory("mpi-errors");
  const int ranks = size_of(MPI_COMM_WORLD), me = rank_of(MPI_COMM_WORLD);
  const auto last = ranks - 1;
  mpi_communicator comm(MPI_COMM_WORLD);
  const laid_out<double> rows(layouts::mesh_of({ranks}), layouts::shape_of({4 * ranks, 64}), layouts::split({{0}, {}}));
  auto x = rows.array(comm), y = rows.array(comm);
  rows.fill(comm, x);
  rows.fill(comm, y, 3);
  checkpoint saved, restored;
  saved.add("x", x);
  restored.add("x", y);
  saved.save(comm, directory.path, 1);

  // The last rank may write no more than 1 KiB.
  ::rlimit most{};
  getrlimit(RLIMIT_FSIZE, &most);
  std::signal(SIGXFSZ, SIG_IGN);
  auto less = most;
  if (me == last) less.rlim_cur = 1024;
  setrlimit(RLIMIT_FSIZE, &less);
  const auto full = error_on_all([&] { saved.save(comm, directory.path, 2); });
  setrlimit(RLIMIT_FSIZE, &most);
  CHECK(contains(full, "gspmd: on rank " + std::to_string(last) + ": checkpoint: `" + directory.path));
  CHECK(contains(full, "0.x." + std::to_string(last) + ".npy` cannot be written: File too large"));

  // The last rank passes another step, and an array with another name.
  const auto step = error_on_all([&] { saved.save(comm, directory.path, me == last ? 3 : 2); });
  CHECK(contains(step, "checkpoint: processes come with different arrays, directories, steps or options; give all the same"));
  checkpoint other;
  other.add(me == last ? "y" : "x", y);
  CHECK(contains(error_on_all([&] { other.restore_latest(comm, directory.path); }), "processes come with different arrays"));
  CHECK(contains(error_on_all([&] { saved.save(comm, directory.path, 1); }), "step 1 is in `" + directory.path + "` already"));
  CHECK(contains(error_on_all([&] { saved.restore(comm, directory.path, 5); }), "has no step 5; the newest one is 1"));

  const auto step_path = directory.path + "/step-000000000001";
  const auto part = step_path + "/0.x." + std::to_string(last) + ".npy";
  if (me == 0) {
    CHECK(files_of(directory.path) == std::vector<std::string>{"lock", "step-000000000001"});
    auto text = text_of_file(part);
    text.back() = static_cast<char>(text.back() ^ 4);
    write_file(part, text);
  }
  comm.barrier();
  const auto changed = error_on_all([&] { restored.restore_latest(comm, directory.path); });
  CHECK(contains(changed,
                 "gspmd: on rank " + std::to_string(last) + ": checkpoint: `" + part + "` was changed after it was written"));
  if (me == 0) std::filesystem::remove(part);
  comm.barrier();
  CHECK(contains(error_on_all([&] { restored.restore_latest(comm, directory.path); }), part + "` cannot be opened"));
  if (me == 0) write_file(step_path + "/manifest.json", "{}");
  comm.barrier();
  const auto foreign = error_on_all([&] { restored.restore_latest(comm, directory.path); });
  CHECK(foreign == "gspmd: checkpoint: `" + step_path + "/manifest.json` is no manifest of a checkpoint of this library");
  CHECK(rows.wrong(comm, y, 3) == 0);
}
