// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/transport/mpi/messages.hpp"

namespace gspmd::detail {

/// Each of `count` processes sends each other process a block. Blocks may have different sizes and are stored one
/// after the other, in the order of the ranks. MPI_Alltoallv is not used, because a block may have more elements than
/// an int can count.
inline void mpi_exchange(mpi_messages messages, int count, int rank, std::int64_t bytes_per_elem, const std::byte* in,
                         const std::int64_t* sent, std::byte* out, const std::int64_t* received) {
  std::byte* own = nullptr;
  for (int other = 0; other < count; out += received[other++] * bytes_per_elem)
    if (other == rank) own = out;
    else messages.receive(other, out, received[other] * bytes_per_elem);
  for (int other = 0; other < count; in += sent[other++] * bytes_per_elem)
    if (other == rank) std::copy_n(in, sent[other] * bytes_per_elem, own);
    else messages.send(other, in, sent[other] * bytes_per_elem);
  messages.finish();
}

}  // namespace gspmd::detail
