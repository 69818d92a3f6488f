// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/transport/mpi/messages.hpp"

namespace gspmd::detail {

/// Each of `count` processes sends each other process a block. Blocks may have different sizes and are stored one
/// after the other, in the order of the ranks. MPI_Alltoallv is not used, because a block may have more elements than
/// an int can count.
template <class T>
void mpi_exchange(mpi_messages messages, int count, int rank, const T* in, const std::int64_t* sent, T* out,
                  const std::int64_t* received) {
  T* own = nullptr;
  for (int other = 0; other < count; out += received[other++])
    if (other == rank) own = out;
    else messages.receive(other, out, received[other]);
  for (int other = 0; other < count; in += sent[other++])
    if (other == rank) std::copy_n(in, sent[other], own);
    else messages.send(other, in, sent[other]);
  messages.finish();
}

}  // namespace gspmd::detail
