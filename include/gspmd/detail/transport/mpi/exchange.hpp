// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gspmd::detail {

/// Every process sends every other one a block of its own size. Blocks lie one after the other, in the order of the ranks. Not
/// MPI_Alltoallv: a block may have more elements than an int counts.
template <class T>
void mpi_exchange(MPI_Comm comm, int rank, std::int64_t largest_count, const T* in, const std::int64_t* sent, T* out,
                  const std::int64_t* received) {
  int count = 0;
  MPI_Comm_size(comm, &count);
  constexpr int tag = 7;
  std::vector<MPI_Request> requests;
  const auto each_piece = [&](std::int64_t size, auto piece) {
    for (std::int64_t at = 0; at < size; at += largest_count) piece(at, static_cast<int>(std::min(largest_count, size - at)));
  };
  for (int other = 0; other < count; ++other) {
    if (other != rank)
      each_piece(received[other], [&](std::int64_t at, int size) {
        requests.push_back(MPI_REQUEST_NULL);
        check_mpi(MPI_Irecv(out + at, size, mpi_type<T>(), other, tag, comm, &requests.back()), "MPI_Irecv", rank);
      });
    out += received[other];
  }
  out -= [&] {
    std::int64_t behind = 0;
    for (int other = rank; other < count; ++other) behind += received[other];
    return behind;
  }();
  for (int other = 0; other < count; ++other) {
    if (other == rank) std::copy_n(in, sent[other], out);
    else
      each_piece(sent[other], [&](std::int64_t at, int size) {
        requests.push_back(MPI_REQUEST_NULL);
        check_mpi(MPI_Isend(in + at, size, mpi_type<T>(), other, tag, comm, &requests.back()), "MPI_Isend", rank);
      });
    in += sent[other];
  }
  check_mpi(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "MPI_Waitall", rank);
}

}  // namespace gspmd::detail
