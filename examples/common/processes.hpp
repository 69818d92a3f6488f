// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <unistd.h>

#include <cstdio>

#include "command_line.hpp"

namespace examples {

/// The main of an example over MPI. Calls body(ranks). Only rank 0 prints. If ranks throw an exception, one rank
/// prints its text and ends all ranks.
template <class Body>
int run_processes(int argc, char** argv, const Body& body) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  set_first_process(rank == 0);
  const int status = run_main([&] {
    try {
      return body(ranks);
    } catch (const usage_error&) {
      throw;  // every rank has the same command line
    } catch (const std::exception& failure) {
      // Most errors are the same on all ranks. Then rank 0 ends the others before they print.
      if (rank != 0) ::sleep(1);
      std::fprintf(stderr, "%s\n", failure.what());
      std::fflush(stderr);
      MPI_Abort(MPI_COMM_WORLD, 1);
      return 1;
    }
  });
  MPI_Finalize();
  return status;
}

}  // namespace examples
