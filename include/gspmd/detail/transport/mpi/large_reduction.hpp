// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// Carries out an all_reduce by messages, in the order of the members. It is used inside a node for buffers larger
/// than the second-level caches, and without a node_window for reductions that MPI cannot do
/// (mpi_reductions::is_reduced_here). The buffer is processed in pieces. For each piece, a member
///  1. receives the peers' elements of its part of the piece, and reduces them in the order of the members;
///  2. sends the result to the peers, and receives their results.
///
/// Inside a node MPI copies directly between the memory of two processes, so each cache line crosses once in each
/// direction. A node_window would be written first and then read. `out` may be `in`.
template <class T>
void all_reduce_by_messages(mpi_messages messages, growing_buffer& memory, monoid kind, std::int64_t n, std::int64_t self,
                            std::int64_t elems, const T* in, T* out) {
  constexpr auto width = static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t least_part_bytes = 32 << 10, least_piece_bytes = 4 << 20;
  const auto most = (n * least_part_bytes > least_piece_bytes ? n * least_part_bytes : least_piece_bytes) / width;
  const auto piece = elems < most ? elems : most;
  const auto part = chunk_of(piece, width, n, 0).end;
  const auto op =
      combiner_of<T, 1>(kind);  // one vector at a time: with two, cache lines that are dirty in the other core take 10 % longer
  T* const scratch = memory.at_least<T>(part * n);
  for (std::int64_t begin = 0; begin < elems; begin += piece) {
    const auto count = elems - begin < piece ? elems - begin : piece;
    const auto mine = chunk_of(count, width, n, self);
    const auto mine_elems = mine.end - mine.begin;
    T* const result = out + begin + mine.begin;
    for (std::int64_t k = 1; k < n; ++k) {
      const auto j = (self + k) % n;
      const auto theirs = chunk_of(count, width, n, j);
      messages.receive(j, scratch + j * part, mine_elems);
      messages.send(j, in + begin + theirs.begin, theirs.end - theirs.begin);
    }
    const T* own = in + begin + mine.begin;
    // In place, reduce_row would overwrite the own input with the reduction of members 0 and 1 before it reads this
    // input.
    if (own == result && self >= 2) {
      std::copy_n(own, mine_elems, scratch + self * part);
      own = scratch + self * part;
    }
    messages.finish();
    const auto source = [&](std::int64_t j) -> const T* { return j == self ? own : scratch + j * part; };
    if (mine_elems > 0 && n == 2) op.combine(result, result, source(0), source(1), mine_elems);
    else if (mine_elems > 0) reduce_row(op, result, n, source, 0, mine_elems, false);
    for (std::int64_t k = 1; k < n; ++k) {
      const auto j = (self + k) % n;
      const auto theirs = chunk_of(count, width, n, j);
      messages.receive(j, out + begin + theirs.begin, theirs.end - theirs.begin);
      messages.send(j, static_cast<const T*>(result), mine_elems);
    }
    messages.finish();
  }
}

}  // namespace gspmd::detail
