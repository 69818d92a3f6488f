// SPDX-License-Identifier: Apache-2.0
// Runs two implementations of the same work over all processes, alternately. The time of the slowest rank counts.
#pragma once

#include <mpi.h>

#include "race.hpp"

namespace bench {

/// Prints the row on rank 0. `other`: the name of the second implementation.
template <class Ours, class Theirs>
void race_over_mpi(const char* what, int rounds, double target, const char* other, Ours ours, Theirs theirs) {
  race_times t;
  const auto timed = [](auto& f) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    f();
    double took = (MPI_Wtime() - start) * 1e3;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
  };
  for (int round = -2; round < rounds; ++round) {
    const double a = timed(ours), b = timed(theirs);
    if (round >= 0) t.add(a, b);
  }
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) t.print(what, target, other);
}

}  // namespace bench
