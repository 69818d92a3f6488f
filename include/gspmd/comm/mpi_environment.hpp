// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"  // first: it configures and includes mpi.h

#include <cstdlib>
#include <exception>

#include "gspmd/error.hpp"

namespace gspmd {

/// Starts MPI in the first line of main and finalizes it at the end. An exception that leaves main ends all ranks.
///
/// The constructor calls MPI_Init and the destructor calls MPI_Finalize, unless MPI already runs: then your program
/// calls both, for example MPI_Init_thread. During the lifetime of the object, std::terminate prints the text of the
/// exception and ends all ranks by MPI_Abort with status 1. If several ranks have an exception, rank 0 prints its text
/// and the others print nothing. If rank 0 has none, another rank prints its text after 2 s.
///
/// **Communication.** The constructor and the destructor are collective over MPI_COMM_WORLD.
/// **Example.**
///
///     int main(int argc, char** argv) {
///       const mpi_environment env(argc, argv);
///       auto y = run<step>(mpi{}, x, w);
///       if (env.rank() == 0) std::printf("%g\n", y[0]);
///     }
class mpi_environment {
 public:
  mpi_environment(int& argc, char**& argv) {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    owns_mpi_ = is_initialized == 0;
    if (owns_mpi_) MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    before_ = std::set_terminate(end_all_ranks);
  }
  mpi_environment(const mpi_environment&) = delete;
  mpi_environment& operator=(const mpi_environment&) = delete;
  ~mpi_environment() {
    std::set_terminate(before_);
    if (owns_mpi_ && !detail::mpi_is_finalized()) MPI_Finalize();
  }

  /// Returns the rank of this process in MPI_COMM_WORLD.
  [[nodiscard]] int rank() const { return rank_; }
  /// Returns the number of processes in MPI_COMM_WORLD.
  [[nodiscard]] int size() const { return size_; }

 private:
  [[noreturn, gnu::cold]] static void end_all_ranks() {
    if (!detail::mpi_is_finalized()) {
      try {
        if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
        detail::end_all_ranks(error("std::terminate was called without an exception"), MPI_COMM_WORLD);
      } catch (const error& failure) {
        detail::end_all_ranks(failure, MPI_COMM_WORLD);
      } catch (const std::exception& failure) {
        detail::end_all_ranks(error(failure.what()), MPI_COMM_WORLD);
      } catch (...) {
        detail::end_all_ranks(error("an exception that is not a std::exception"), MPI_COMM_WORLD);
      }
    }
    std::abort();
  }

  std::terminate_handler before_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool owns_mpi_ = true;
};

}  // namespace gspmd
