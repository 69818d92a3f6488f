// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/watch.hpp"
#include "gspmd/error.hpp"

/// On a communicator of the user, all ranks wait here until all have called run, launch or the constructor of
/// mpi_communicator.
///
/// A rank may compute for hours before it calls, or it may never call. MPI does not distinguish the two cases.
///  1. If a rank dies or exits without MPI_Finalize, the launcher (mpirun) ends all ranks.
///  2. If a rank has called MPI_Finalize after an earlier launch on this communicator, it votes in the watch of that
///     launch. The ranks that wait here vote too. They see that the rank has left, and end all ranks.
///  3. If no earlier launch exists, gspmd has no code that runs in MPI_Finalize of that rank. The ranks that wait
///     print a note. The environment variable GSPMD_START_SECONDS limits this wait.
namespace gspmd::detail {

inline double arrival_note_seconds = 4;  // tests use less

/// Returns the number of seconds in GSPMD_START_SECONDS, or infinity if the variable is not set.
inline double most_start_seconds() {
  const char* const text = std::getenv("GSPMD_START_SECONDS");
  if (text == nullptr) return std::numeric_limits<double>::infinity();
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(seconds > 0))
    throw error("GSPMD_START_SECONDS is `" + std::string(text) + "`; give a number of seconds above 0");
  return seconds;
}

[[gnu::cold]] inline std::string describe_start(const mesh_shape*, dtype, const void*) { return "run or launch"; }

/// Returns when `request`, a collective of all ranks of `comm`, is complete. `watch` is the watch of an earlier
/// launch on `comm`, or null.
inline void wait_for_all_ranks(MPI_Request request, MPI_Comm comm, mpi_watch* watch) {
  int rank = 0, count = 1, is_over = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &count);
  const meeting_subject start{7, nullptr, nullptr, nullptr, describe_start};
  mpi_wait wait{.subject = start, .never = never_starts};
  bool is_noted = watch != nullptr || rank > 1;  // two ranks print, because one of two ranks may be the missing rank
  const char* const missing = count > 2 ? "another rank of its communicator" : rank == 0 ? "rank 1" : "rank 0";
  double since = 0, most_seconds = std::numeric_limits<double>::infinity();
  for (int turns = 0;; ++turns) {
    check_mpi(MPI_Test(&request, &is_over, MPI_STATUS_IGNORE), "MPI_Test", rank);
    if (is_over != 0) return;
    if (turns < 100) continue;
    const double now = MPI_Wtime();
    if (turns == 100) since = now;
    if (now < since + 1) std::this_thread::yield();
    else ::usleep(100);
    try {
      if (turns == 100 && watch == nullptr) most_seconds = most_start_seconds();
      if (watch != nullptr) watch->turn(wait, (rank + 1) % count);  // the next rank waits for its next rank, and so on
      if (now > since + most_seconds)
        throw error(std::string("has waited in run or launch for ") + missing + " for longer than GSPMD_START_SECONDS", rank);
    } catch (const error& failure) {
      abort_mpi(failure, comm);
    }
    if (is_noted || now < since + arrival_note_seconds) continue;
    is_noted = true;
    std::fprintf(stderr,
                 "gspmd: note: rank %d has waited %g s in run or launch for %s; the wait ends when that rank arrives, and never "
                 "if that rank has called MPI_Finalize. GSPMD_START_SECONDS=60 ends all ranks after 60 s\n",
                 rank, arrival_note_seconds, missing);
  }
}

/// Waits until all ranks of `comm` have made this call.
inline void wait_for_all_ranks(MPI_Comm comm, mpi_watch* watch) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier", -1);
  wait_for_all_ranks(request, comm, watch);
}

/// Combines `count` integers of all ranks of `comm`, in place, by their minimum.
inline void minimum_of_all_ranks(int* values, int count, MPI_Comm comm, mpi_watch* watch) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_INT, MPI_MIN, comm, &request), "MPI_Iallreduce", -1);
  wait_for_all_ranks(request, comm, watch);
}

}  // namespace gspmd::detail
