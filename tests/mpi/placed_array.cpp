// SPDX-License-Identifier: Apache-2.0
// labels: any_mpi
// ranks: 2 4
// group: run
#include "gspmd/layouts/placed_array.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "gspmd/mpi.hpp"
#include "support/layouts.hpp"

using namespace gspmd;

TEST_CASE("layouts there and back over MPI, in calls of any size") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const std::int64_t largest : {std::int64_t{3}, std::int64_t{INT_MAX}}) {
    mpi_communicator comm(MPI_COMM_WORLD, {true, largest});
    const auto mesh = layouts::mesh_of({ranks / 2, 2});
    array<double> whole({11, 6});
    std::iota(whole.begin(), whole.end(), 0.5);
    const auto all = layouts::all_shardings(mesh, 2);
    const placed_layout plain(mesh, whole.shape(), all.back());
    for (const auto& s : all) {
      const placed_layout cyclic(mesh, whole.shape(), s, block_cyclic<2>{}, strided<2>{});
      const auto x = distribute(comm, cyclic, whole);
      const auto y = redistribute(comm, redistribute(comm, x, plain), cyclic);
      CHECK(std::equal(x.shard().begin(), x.shard().end(), y.shard().begin()));
      const auto back = collect(comm, y);
      CHECK(std::equal(back.begin(), back.end(), whole.begin()));
    }
  }
}
