// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/large_reduction.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/mpi/movements.hpp"

namespace gspmd::detail {

/// The methods of a reduction between the members of a group: messages, MPI calls, or the node window.
class mpi_reductions {
 public:
  mpi_reductions(mpi_members& members, mpi_movements& movements) : m_(members), movements_(movements) {}

  void all_reduce(const mpi_reduced& how, std::int64_t elems, const std::byte* in, std::byte* out) {
    if (elems == 0) return;  // the same on all members
    const auto bytes = elems * how.op.elem_bytes;
    const auto by_messages = [&] {
      all_reduce_by_messages(m_.messages(), m_.work.receive_scratch, how, m_.size(), m_.self, elems, in, out);
    };
    if (m_.window() != nullptr && !m_.work.oversubscribed && bytes >= all_reduce_by_messages_bytes) return by_messages();
    if (m_.window() != nullptr) return m_.window()->all_reduce(how.op, elems, in, out);
    if (mpi_movements::are_few(bytes * m_.size())) return all_reduce_gathered(how.op, bytes, in, out);
    if (is_reduced_here(how)) return by_messages();
    const auto e = mpi_elements_of(how.type);
    const auto op = mpi_op(how.type, how.kind);
    m_.roll_call();
    m_.messages().for_each_piece(elems, [&](std::int64_t begin, int count) {
      const void* const from = in == out ? MPI_IN_PLACE : in + begin * e.bytes;
      m_.check(MPI_Allreduce(from, out + begin * e.bytes, count, e.type, op, m_.comm()), "MPI_Allreduce");
    });
  }

  void reduce_scatter(const reduction_route& route, const mpi_reduced& how, const std::byte* in, std::byte* out) {
    if (route.is_stacked) return reduce_blocks(route, how, in, out);
    // Packs the box of each member, reduces the blocks, which may have different sizes, and copies the own block into
    // the result.
    const auto width = how.op.elem_bytes;
    std::byte* const packed_in = m_.work.send_scratch.at_least(route.result_elems * m_.size() * width);
    std::byte* const packed_out = m_.work.receive_scratch.at_least(route.result_elems * width);
    for (const int box : route.packs) copy_box(packed_in, in, route.boxes[box], width);
    reduce_blocks(route, how, packed_in, packed_out);
    if (route.own != no_box) copy_box(out, packed_out, route.boxes[route.own], width);
  }

  /// Reduces blocks. `in` has the blocks of the members one after the other.
  void reduce_blocks(const reduction_route& route, const mpi_reduced& how, const std::byte* in, std::byte* out) {
    if (m_.window() != nullptr) return m_.window()->reduce_scatter(how.op, route.offsets.data(), in, out);
    const auto e = mpi_elements_of(how.type);
    if (movements_.are_few_for_each(route.offsets.back() * e.bytes) || is_reduced_here(how))
      return reduce_received_blocks(route, how, in, out);
    const auto op = mpi_op(how.type, how.kind);
    m_.roll_call();
    if (route.offsets.back() > m_.work.largest_count) {
      for (std::int64_t j = 0; j < m_.size(); ++j) {
        const auto* const block = in + route.offsets[static_cast<std::size_t>(j)] * e.bytes;
        m_.messages().for_each_piece(route.block_elems(j), [&](std::int64_t begin, int count) {
          const auto at = begin * e.bytes;
          m_.check(MPI_Reduce(block + at, out + at, count, e.type, op, static_cast<int>(j), m_.comm()), "MPI_Reduce");
        });
      }
    } else if (route.is_stacked) {
      m_.check(MPI_Reduce_scatter_block(in, out, static_cast<int>(route.result_elems), e.type, op, m_.comm()),
               "MPI_Reduce_scatter_block");
    } else {
      m_.check(MPI_Reduce_scatter(in, out, route.counts.data(), e.type, op, m_.comm()), "MPI_Reduce_scatter");
    }
  }

 private:
  /// Returns true if gspmd reduces these elements instead of MPI. MPI has no bf16. Integers of 8 and 16 bits must
  /// wrap around, but the sums of Open MPI 4.1 saturate (its op/avx). MPICH 4.0 computes the maximum of unsigned
  /// integers as if they were signed. MPI's maximum of a number and a NaN is either of the two.
  static bool is_reduced_here(const mpi_reduced& how) {
    const auto& facts = facts_of(how.type);
    const bool is_number = facts.is_floating || (facts.is_integer && facts.least == 0);
    return facts.is_own || is_narrow(how.type) || (is_number && (how.kind == monoid::max || how.kind == monoid::min));
  }

  /// Reduces a few values; programs may branch on the result. Each member reduces all values in the order of the
  /// members, as in shared memory. MPI may use another order. Its maximum of a number and a NaN is either of the two,
  /// and may differ between members.
  void all_reduce_gathered(const row_combiner& op, std::int64_t bytes, const std::byte* in, std::byte* out) {
    reduce_row(op, out, m_.size(), movements_.gather_few(bytes, in), 0, bytes / op.elem_bytes, false);
  }

  void reduce_received_blocks(const reduction_route& route, const mpi_reduced& how, const std::byte* in, std::byte* out) {
    const auto block_of = [&](std::int64_t j) {
      return chunk{route.offsets[static_cast<std::size_t>(j)], route.offsets[static_cast<std::size_t>(j) + 1]};
    };
    const auto mine = block_of(m_.self);
    const auto elems = mine.end - mine.begin;
    const auto bytes = elems * how.op.elem_bytes;
    std::byte* const blocks = blocks_.at_least(bytes * m_.size());
    movements_.give_each(mpi_elements_of(how.type), in, block_of, blocks, elems);
    if (elems == 0) return;
    reduce_row(
        how.op, out, m_.size(), [&](std::int64_t j) { return blocks + j * bytes; }, 0, elems, false);
  }

  mpi_members& m_;
  mpi_movements& movements_;
  growing_buffer blocks_;
};

}  // namespace gspmd::detail
