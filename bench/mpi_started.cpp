// SPDX-License-Identifier: Apache-2.0
// A backward pass whose reductions are started, on two threads and on two MPI processes. Compared with blocking
// reductions and with hand-written code with MPI_Iallreduce. Without a network, there is nothing to hide. For a network
// as slow as the computation, on one machine:
//
//   mpirun -n 2 mpi_started [rounds, 15]
//   mpirun -n 2 --mca btl tcp,self --mca pml ob1 -x GSPMD_RANKS_PER_NODE=1 mpi_started
#include "gspmd/mpi.hpp"

#include "started.hpp"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  constexpr int elems = static_cast<int>(bench::width * bench::width);
  if (rank == 0)
    gspmd::launch(gspmd::threads{}, bench::devices, [&](auto& comm) {
      bench::race(comm, rounds, "threads", {{"gspmd, blocking"}, {"gspmd, started"}});
    });
  MPI_Barrier(MPI_COMM_WORLD);
  const auto at_once = [](bench::matrix& g, int) {
    MPI_Allreduce(MPI_IN_PLACE, g.data(), elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  MPI_Request requests[bench::layers];
  const auto begin = [&](bench::matrix& g, int k) {
    MPI_Iallreduce(MPI_IN_PLACE, g.data(), elems, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[k]);
  };
  const auto go_on = [&] {
    int is_over = 0;
    for (int k = bench::layers - 1; k >= 0; --k)
      if (requests[k] != MPI_REQUEST_NULL) MPI_Test(&requests[k], &is_over, MPI_STATUS_IGNORE);
  };
  const auto wait = [&](int k) { MPI_Wait(&requests[k], MPI_STATUS_IGNORE); };
  for (auto& r : requests) r = MPI_REQUEST_NULL;
  bench::by_hand blocking(
      at_once, [] {}, [](int) {});
  bench::by_hand starting(begin, go_on, wait);
  launch(gspmd::mpi{MPI_COMM_WORLD}, bench::devices, [&](auto& comm) {
    bench::race(comm, rounds, "MPI",
                {{"gspmd, blocking"}, {"gspmd, started"}, {"hand-written, MPI_Allreduce"}, {"hand-written, MPI_Iallreduce"}},
                blocking, starting);
  });
  MPI_Finalize();
}
