// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>

#include <gspmd/comm/mpi.hpp>

#include "command_line.hpp"

/// Runs a program of the run time over all processes.
inline constexpr auto run_over_mpi = [](const auto& program, const auto& inputs) {
  return program.run_pointers(gspmd::mpi{MPI_COMM_WORLD}, inputs);
};

/// The main of an example with one device per process: body(ranks, is_first), of which process 0 alone talks.
template <class F>
int over_mpi(int argc, char** argv, const char* usage, F&& body) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (rank != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
  const int status = command_line::report_errors(usage, [&] { return body(ranks, rank == 0); });
  MPI_Finalize();
  return status;
}
