// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 yee-mpi --cells 500x500
// args: --cells 60x41 --frames 2
// ranks: 2 3

#include "cavity.hpp"

#include <gspmd/comm/mpi.hpp>
#include <gspmd/dynamic.hpp>

#include <cstdio>
#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);  // one of them talks
  const std::string usage =
      "usage: mpirun -n RANKS yee-mpi [--cells NxM] [--steps N] [--frames N] [--out DIR]\n" + std::string(yee::options_text);
  const int status = command_line::report_errors(usage.c_str(), [&] {
    auto o = yee::parse(argc, argv, false);
    if (rank != 0) o.out.clear();
    return yee::simulate(o, ranks, [](const auto& program, const auto& inputs) {
      return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs);
    });
  });
  MPI_Finalize();
  return status;
}
