// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// alone: yes
// ranks: 2 4 8
// timeout: 120
#include <doctest/doctest.h>

#include <utility>

#include "gspmd/mpi.hpp"
#include "support/run_compiled.hpp"

// Random programs, compiled for a number of devices equal to the number of ranks. They differ from the programs of
// runs/.

namespace {

using namespace random_callables;

template <class Program>
void check(gspmd::mpi_communicator& comm) {
  if (comm.device_count() != Program::step::device_count) return;
  const auto e = expectation_of<Program>();
  CHECK(wrong_run_on<Program>(comm, e) == "");
}

}  // namespace

TEST_CASE("compiled random programs over MPI equal the naive reference") {
  gspmd::mpi_communicator comm(MPI_COMM_WORLD);
  constexpr unsigned count = 2;
  [&]<unsigned... I>(std::integer_sequence<unsigned, I...>) {  // 2, 4 and 8 devices
    ((check<program<1000 + I, 4>>(comm), check<program<2000 + I, I % 2>>(comm), check<program<3000 + I, 3 + 2 * (I % 2)>>(comm)),
     ...);
  }(std::make_integer_sequence<unsigned, count>{});
}
