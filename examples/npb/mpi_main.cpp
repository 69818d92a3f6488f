// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 3 npb-mpi ep S
// args: all S
// ranks: 2 3

#include "kernels.hpp"

#include <gspmd/comm/mpi.hpp>

#include <cstdio>

#include "../command_line.hpp"

constexpr const char* usage =
    "usage: mpirun -n RANKS npb-mpi KERNEL CLASS\n"
    "  KERNEL       its two letters, ep say, or all\n"
    "  CLASS        S, W or A\n";

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);  // one of them talks
  const int status = command_line::report_errors(usage, [&] {
    const auto o = npb::parse(argc, argv);
    if (argc > 3) throw command_line::usage_error(std::string(argv[3]) + ": the number of devices is mpirun's");
    const npb::machine m{
        ranks, [](const auto& program, const auto& inputs) { return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs); }};
    return npb::run_kernels(o, m);
  });
  MPI_Finalize();
  return status;
}
