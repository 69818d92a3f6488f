// SPDX-License-Identifier: Apache-2.0
#pragma once

// Old mpi.h files include C++ bindings, which cost 0.7 s for each translation unit. No code uses them.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#define GSPMD_UNDEF_OMPI_SKIP_MPICXX
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#define GSPMD_UNDEF_MPICH_SKIP_MPICXX
#endif
#include <mpi.h>
#ifdef GSPMD_UNDEF_OMPI_SKIP_MPICXX
#undef OMPI_SKIP_MPICXX
#undef GSPMD_UNDEF_OMPI_SKIP_MPICXX
#endif
#ifdef GSPMD_UNDEF_MPICH_SKIP_MPICXX
#undef MPICH_SKIP_MPICXX
#undef GSPMD_UNDEF_MPICH_SKIP_MPICXX
#endif

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Throws an error with MPI's text, unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call, int rank) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  throw error(std::string(call) + " failed: " + std::string(text, static_cast<std::size_t>(length)), rank);
}

inline bool mpi_is_finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}
inline void require_mpi_runs() {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized == 0 || mpi_is_finalized())
    throw error("the mpi backend needs MPI to be running: call MPI_Init before and MPI_Finalize after");
}

/// Throws unless MPI runs and `comm` is an intracommunicator: its processes form a single group.
inline void require_communicator(MPI_Comm comm) {
  require_mpi_runs();
  if (comm == MPI_COMM_NULL) throw error("the mpi backend was given MPI_COMM_NULL; only the members of a communicator call");
  int is_between = 0;
  MPI_Comm_test_inter(comm, &is_between);
  if (is_between != 0)
    throw error(
        "the mpi backend was given an intercommunicator, which has two groups; make one communicator by MPI_Intercomm_merge");
}

/// Prints the error to stderr and ends all processes. When processes end, MPICH's launcher discards their output that
/// it has not read, so the process first waits 0.2 s. MPICH's MPI_Abort waits for processes that communicate with
/// this process and compute. So a signal ends this process after a second, and then the launcher ends the other
/// processes.
[[gnu::noinline, gnu::cold]] inline void abort_mpi(const error& failure, MPI_Comm comm) {
  std::fprintf(stderr, "%s\n", failure.what());
  std::fflush(stderr);
  ::usleep(200'000);
  std::signal(SIGALRM, SIG_DFL);
  ::sigset_t alarms;  // the program may have blocked them
  ::sigemptyset(&alarms);
  ::sigaddset(&alarms, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  ::alarm(1);
  MPI_Abort(comm, 1);
}

/// The time that a rank with an error waits for rank 0 to print the same error. Tests make it shorter.
inline double seconds_for_rank_0 = 2;

/// Ends all processes with an error that other ranks may have too. Rank 0 prints its text immediately. Another rank first
/// waits to be ended. If rank 0 has no error, the other rank then prints its text and its rank.
[[gnu::noinline, gnu::cold]] inline void end_all_ranks(const error& failure, MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  if (rank == 0) return abort_mpi(failure, comm);
  ::usleep(static_cast<::useconds_t>(seconds_for_rank_0 * 1e6));
  abort_mpi(failure.rank() < 0 ? failure.with_rank(rank) : failure, comm);
}

/// The elements of a message or of an MPI call.
struct mpi_elements {
  MPI_Datatype type = MPI_BYTE;
  std::int64_t bytes = 1;  // of an element
};

/// Returns the MPI type of elements. MPI only moves elements of an own type and of the narrow floats, so any type with
/// the same width is right for them.
inline MPI_Datatype mpi_type(dtype type) {
  switch (moved_as(type)) {
    case dtype::f32: return MPI_FLOAT;
    case dtype::f64: return MPI_DOUBLE;
    case dtype::s32: return MPI_INT32_T;
    case dtype::s64: return MPI_INT64_T;
    case dtype::pred: return MPI_C_BOOL;
    case dtype::s8: return MPI_INT8_T;
    case dtype::u8: return MPI_UINT8_T;
    case dtype::s16: return MPI_INT16_T;
    case dtype::bf16:
    case dtype::f16: return MPI_UINT16_T;
    case dtype::u32: return MPI_UINT32_T;
    case dtype::u64: return MPI_UINT64_T;
    case dtype::c64: return MPI_C_FLOAT_COMPLEX;
    case dtype::c128: return MPI_C_DOUBLE_COMPLEX;
  }
  return MPI_BYTE;
}
inline mpi_elements mpi_elements_of(dtype type) { return {mpi_type(type), bytes_of(type)}; }

/// Returns the MPI operation that combines as combiner_of (combine_rows.hpp) does, except for NaN, for which MPI
/// specifies no result. `type` is not an own type.
inline MPI_Op mpi_op(dtype type, monoid kind) {
  if (type == dtype::pred) return kind == monoid::and_ || kind == monoid::min || kind == monoid::multiply ? MPI_LAND : MPI_LOR;
  switch (kind) {
    case monoid::add: return MPI_SUM;
    case monoid::multiply: return MPI_PROD;
    case monoid::max: return MPI_MAX;
    case monoid::min: return MPI_MIN;
    case monoid::and_:
    case monoid::or_:
      if (facts_of(type).is_integer) return kind == monoid::and_ ? MPI_BAND : MPI_BOR;
  }
  throw error("and, or reduce booleans and integers, not floating-point numbers");
}

}  // namespace gspmd::detail
