// SPDX-License-Identifier: Apache-2.0
#include <gspmd/dynamic.hpp>
#include <gspmd/mpi.hpp>
#include <gspmd/native/native_code.hpp>

#include "machine.hpp"
#include "processes.hpp"

namespace examples {

int over_mpi(int argc, char** argv, example* body) {
  const auto run = [](const auto& program, const machine::pointers& inputs) {
    return program.run(gspmd::mpi{MPI_COMM_WORLD}, inputs);
  };
  return run_processes(argc, argv, [&](int ranks) { return body(argc, argv, machine{ranks, run, run}); });
}

}  // namespace examples
