// SPDX-License-Identifier: Apache-2.0
// The MLP step on two MPI processes, compared with hand-written code.
//
//   mpirun -n 2 mpi_mlp_step [rounds, 20]
#include "gspmd/mpi.hpp"

#include "mlp.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bench::race_times data, model;
  launch(gspmd::mpi{MPI_COMM_WORLD}, 2, [&](auto& comm) { bench::race<bench::data_step>(comm, true, rounds, data); });
  if (rank == 0) data.print("MLP step, MPI, data = 2");
  launch(gspmd::mpi{MPI_COMM_WORLD}, 2, [&](auto& comm) { bench::race<bench::model_step>(comm, false, rounds, model); });
  if (rank == 0) model.print("MLP step, MPI, model = 2");
  MPI_Finalize();
}
