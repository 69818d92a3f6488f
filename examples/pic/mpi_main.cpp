// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 pic-mpi --particles 1000000
// args: --particles 3001 --frames 80
// ranks: 2 3

#include "plasma.hpp"

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
      "usage: mpirun -n RANKS pic-mpi [--particles N] [--points N] [--frames N] [--out DIR]\n" + std::string(pic::options_text);
  const int status = command_line::report_errors(usage.c_str(), [&] {
    auto o = pic::parse(argc, argv, false);
    o.devices = ranks;
    if (rank != 0) o.out.clear();
    return pic::simulate(
        o, [](const auto& program, const auto& inputs) { return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs); });
  });
  MPI_Finalize();
  return status;
}
