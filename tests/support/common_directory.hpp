// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <doctest/doctest.h>
#include <mpi.h>

#include "gspmd/error.hpp"
#include "gspmd/mpi.hpp"
#include "support/layouts.hpp"
#include "support/stored_states.hpp"

/// A directory for the files of all ranks, arrays that the ranks save and load, and errors that are equal on all ranks.
namespace common_files {

inline int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
inline int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// A directory for all ranks. The first rank removes it when all ranks have finished.
struct common_directory {
  std::optional<stored_states::test_directory> owned;
  std::string path;
  explicit common_directory(const std::string& name) {
    if (rank_of(MPI_COMM_WORLD) == 0) owned.emplace(name);
    path = owned ? owned->path : "";
    int size = static_cast<int>(path.size());
    MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
    path.resize(static_cast<std::size_t>(size));
    MPI_Bcast(path.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  }
  ~common_directory() { MPI_Barrier(MPI_COMM_WORLD); }
};

inline stored_states::laid_out<double> by_rows(int devices) {
  return {layouts::mesh_of({devices}), layouts::shape_of({9, 5}), layouts::split({{0}, {}})};
}
inline stored_states::laid_out<double> by_columns(int devices) {
  return {layouts::mesh_of({devices}), layouts::shape_of({9, 5}), layouts::split({{}, {0}})};
}
/// Calls f(comm, layout) on the first rank, on the first two ranks, and so on, with a layout by rows and a layout by
/// columns.
template <class F>
void for_fewer_ranks(F f) {
  const int me = rank_of(MPI_COMM_WORLD);
  for (int some = 1; some <= size_of(MPI_COMM_WORLD); ++some) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, me < some ? 0 : MPI_UNDEFINED, me, &part);
    if (part == MPI_COMM_NULL) continue;
    {
      gspmd::mpi_communicator comm(part);
      for (const auto& layout : {by_rows(some), by_columns(some)}) f(comm, layout);
    }
    MPI_Comm_free(&part);
  }
}

/// Returns the text of the error that `f` throws, which must be equal on all ranks.
template <class F>
std::string error_on_all(F f) {
  std::string text;
  try {
    f();
  } catch (const gspmd::error& e) {
    text = e.what();
  }
  std::string first = text;
  int size = static_cast<int>(first.size());
  MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  first.resize(static_cast<std::size_t>(size));
  MPI_Bcast(first.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  CHECK(text == first);
  return text;
}

}  // namespace common_files
