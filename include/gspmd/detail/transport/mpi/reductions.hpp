// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>
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

  template <class T>
  void all_reduce(std::int64_t elems, monoid kind, const T* in, T* out) {
    if (elems == 0) return;  // the same on all members
    if (m_.window() != nullptr && !m_.work.oversubscribed &&
        elems * static_cast<std::int64_t>(sizeof(T)) >= all_reduce_by_messages_bytes)
      return all_reduce_by_messages(m_.messages(), m_.work.receive_scratch, kind, m_.size(), m_.self, elems, in, out);
    if (m_.window() != nullptr) return m_.window()->all_reduce(combiner_of<T>(kind), elems, in, out);
    if (mpi_movements::are_few<T>(elems * m_.size())) return all_reduce_gathered(elems, kind, in, out);
    if (is_reduced_here<T>(kind))
      return all_reduce_by_messages(m_.messages(), m_.work.receive_scratch, kind, m_.size(), m_.self, elems, in, out);
    m_.roll_call();
    m_.messages().for_each_piece(elems, [&](std::int64_t begin, int count) {
      m_.check(MPI_Allreduce(in == out ? MPI_IN_PLACE : static_cast<const void*>(in + begin), out + begin, count, mpi_type<T>(),
                             mpi_op<T>(kind), m_.comm()),
               "MPI_Allreduce");
    });
  }

  template <class T>
  void reduce_scatter(const reduction_route& route, monoid kind, const T* in, T* out) {
    if (route.is_stacked) return reduce_blocks(route, kind, in, out);
    // Packs the box of each member, reduces the blocks, which may have different sizes, and copies the own block into
    // the result.
    T* const packed_in = m_.work.send_scratch.template at_least<T>(route.result_elems * m_.size());
    T* const packed_out = m_.work.receive_scratch.template at_least<T>(route.result_elems);
    for (const int box : route.packs) copy_box(packed_in, in, route.boxes[box], sizeof(T));
    reduce_blocks(route, kind, static_cast<const T*>(packed_in), packed_out);
    if (route.own != no_box) copy_box(out, packed_out, route.boxes[route.own], sizeof(T));
  }

  /// Reduces blocks. `in` has the blocks of the members one after the other.
  template <class T>
  void reduce_blocks(const reduction_route& route, monoid kind, const T* in, T* out) {
    if (m_.window() != nullptr) return m_.window()->reduce_scatter(combiner_of<T>(kind), route.offsets.data(), in, out);
    if (movements_.are_few_for_each<T>(route.offsets.back()) || is_reduced_here<T>(kind))
      return reduce_received_blocks(route, kind, in, out);
    const auto type = mpi_type<T>();
    const auto op = mpi_op<T>(kind);
    m_.roll_call();
    if (route.offsets.back() > m_.work.largest_count) {
      for (std::int64_t j = 0; j < m_.size(); ++j) {
        const auto first = route.offsets[static_cast<std::size_t>(j)];
        m_.messages().for_each_piece(route.offsets[static_cast<std::size_t>(j) + 1] - first, [&](std::int64_t begin, int count) {
          m_.check(MPI_Reduce(in + first + begin, out + begin, count, type, op, static_cast<int>(j), m_.comm()), "MPI_Reduce");
        });
      }
    } else if (route.is_stacked) {
      m_.check(MPI_Reduce_scatter_block(in, out, static_cast<int>(route.result_elems), type, op, m_.comm()),
               "MPI_Reduce_scatter_block");
    } else {
      m_.check(MPI_Reduce_scatter(in, out, route.counts.data(), type, op, m_.comm()), "MPI_Reduce_scatter");
    }
  }

 private:
  /// Returns true if gspmd reduces these elements instead of MPI. MPI has no bf16. Integers of 8 and 16 bits must
  /// wrap around, but the sums of Open MPI 4.1 saturate (its op/avx). MPICH 4.0 computes the maximum of unsigned
  /// integers as if they were signed. MPI's maximum of a number and a NaN is either of the two.
  template <class T>
  static constexpr bool is_reduced_here(monoid kind) {
    constexpr bool is_number = std::is_floating_point_v<T> || (std::is_unsigned_v<T> && !std::is_same_v<T, bool>);
    return own_element<T> || is_narrow(dtype_of<T>()) || (is_number && (kind == monoid::maximum || kind == monoid::minimum));
  }

  /// Reduces a few values; programs may branch on the result. Each member reduces all values in the order of the
  /// members, as in shared memory. MPI may use another order. Its maximum of a number and a NaN is either of the two,
  /// and may differ between members.
  template <class T>
  void all_reduce_gathered(std::int64_t elems, monoid kind, const T* in, T* out) {
    reduce_row(combiner_of<T>(kind), out, m_.size(), movements_.gather_few(elems, in), 0, elems, false);
  }

  template <class T>
  void reduce_received_blocks(const reduction_route& route, monoid kind, const T* in, T* out) {
    const auto block_of = [&](std::int64_t j) {
      return chunk{route.offsets[static_cast<std::size_t>(j)], route.offsets[static_cast<std::size_t>(j) + 1]};
    };
    const auto mine = block_of(m_.self);
    const auto elems = mine.end - mine.begin;
    T* const blocks = blocks_.template at_least<T>(elems * m_.size());
    movements_.give_each(in, block_of, blocks, elems);
    if (elems == 0) return;
    reduce_row(
        combiner_of<T>(kind), out, m_.size(), [&](std::int64_t j) { return blocks + j * elems; }, 0, elems, false);
  }

  mpi_members& m_;
  mpi_movements& movements_;
  growing_buffer blocks_;
};

}  // namespace gspmd::detail
