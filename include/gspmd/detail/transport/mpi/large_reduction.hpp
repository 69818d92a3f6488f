// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/support/tuning.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The element type and the monoid of a reduction, and the code that combines rows of these elements.
struct mpi_reduced {
  dtype type;
  monoid kind;
  const row_combiner& op;
};

/// Returns the code for large sums, which processes one vector at a time: with two, cache lines that are dirty in the
/// other core take 10 % longer. For other types and monoids this is not worth the compile time.
inline row_combiner by_single_vectors(const mpi_reduced& how) {
  row_combiner op = how.op;
  if (how.kind != monoid::add) return op;
  switch (how.type) {
    case dtype::f32: op.combine = combine_rows<monoid::add, float, false, 1>; break;
    case dtype::f64: op.combine = combine_rows<monoid::add, double, false, 1>; break;
    case dtype::s32:
    case dtype::u32: op.combine = combine_rows<monoid::add, std::uint32_t, false, 1>; break;
    case dtype::s64:
    case dtype::u64: op.combine = combine_rows<monoid::add, std::uint64_t, false, 1>; break;
    default: break;
  }
  return op;
}

/// Carries out an all_reduce by messages, in the order of the members. It is used inside a node for buffers larger
/// than the second-level caches, and without a node_window for reductions that MPI cannot do
/// (mpi_reductions::is_reduced_here). The buffer is processed in pieces. For each piece, a member
///  1. receives the peers' elements of its part of the piece, and reduces them in the order of the members;
///  2. sends the result to the peers, and receives their results.
///
/// Inside a node MPI copies directly between the memory of two processes, so each cache line crosses once in each
/// direction. A node_window would be written first and then read. `out` may be `in`.
inline void all_reduce_by_messages(mpi_messages messages, growing_buffer& memory, const mpi_reduced& how, std::int64_t n,
                                   std::int64_t self, std::int64_t elems, const std::byte* in, std::byte* out) {
  constexpr std::int64_t least_part_bytes = 32 << 10, least_piece_bytes = 4 << 20;
  const auto e = mpi_elements_of(how.type);
  const auto width = e.bytes;
  const auto most = (n * least_part_bytes > least_piece_bytes ? n * least_part_bytes : least_piece_bytes) / width;
  const auto piece = elems < most ? elems : most;
  const auto part = chunk_of(piece, width, n, 0).end * width;  // bytes
  const auto op = by_single_vectors(how);
  std::byte* const scratch = memory.at_least(part * n);
  for (std::int64_t begin = 0; begin < elems; begin += piece) {
    const auto count = elems - begin < piece ? elems - begin : piece;
    const auto mine = chunk_of(count, width, n, self);
    const auto mine_elems = mine.end - mine.begin;
    std::byte* const result = out + (begin + mine.begin) * width;
    for (std::int64_t k = 1; k < n; ++k) {
      const auto j = (self + k) % n;
      const auto theirs = chunk_of(count, width, n, j);
      messages.receive(j, scratch + j * part, mine_elems, e);
      messages.send(j, in + (begin + theirs.begin) * width, theirs.end - theirs.begin, e);
    }
    const std::byte* own = in + (begin + mine.begin) * width;
    // In place, reduce_row would overwrite the own input with the reduction of members 0 and 1 before it reads this
    // input.
    if (own == result && self >= 2) {
      std::copy_n(own, mine_elems * width, scratch + self * part);
      own = scratch + self * part;
    }
    messages.finish();
    const auto source = [&](std::int64_t j) -> const std::byte* { return j == self ? own : scratch + j * part; };
    if (mine_elems > 0 && n == 2) op.combine(result, result, source(0), source(1), mine_elems);
    else if (mine_elems > 0) reduce_row(op, result, n, source, 0, mine_elems, false);
    for (std::int64_t k = 1; k < n; ++k) {
      const auto j = (self + k) % n;
      const auto theirs = chunk_of(count, width, n, j);
      messages.receive(j, out + (begin + theirs.begin) * width, theirs.end - theirs.begin, e);
      messages.send(j, result, mine_elems, e);
    }
    messages.finish();
  }
}

}  // namespace gspmd::detail
