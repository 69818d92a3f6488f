// SPDX-License-Identifier: Apache-2.0
// labels: once any_mpi
// group: compiled
// ranks: 64
// timeout: 300
// The test of comm/many_devices.cpp, over ranks.
#include <doctest/doctest.h>

#include <gspmd/gspmd.hpp>
#include <gspmd/mpi.hpp>

#include "support/many_devices.hpp"

TEST_CASE("many devices: 64 ranks meet in every kind of collective, through shared memory and by messages") {
  for (const bool shared_memory : {true, false}) {
    const gspmd::mpi backend{MPI_COMM_WORLD, {.shared_memory = shared_memory}};
    CHECK(many_devices::wrong_on(backend, 64, 2) == "");
  }
}
