// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The methods for a movement between the members of a group; mpi_group selects the method.
class mpi_movements {
 public:
  explicit mpi_movements(mpi_members& members) : m_(members) {}

  void move_small(const movement_route& route, std::int64_t bytes_per_elem, const std::byte* in, std::byte* out) {
    const auto shard_of = m_.window()->share(in, route.shard_elems * bytes_per_elem);
    fill_gaps(route, bytes_per_elem, out);
    for (const auto& t : route.takes)
      copy_box(out, t.peer == m_.self ? in : shard_of(t.peer), route.boxes[t.box], bytes_per_elem);
  }

  /// Returns true for so few bytes, of all members together, that a roll call before an MPI call would take as long
  /// as the call. These movements use gspmd's messages, whose tags have the subject.
  [[nodiscard]] static constexpr bool are_few(std::int64_t bytes) { return bytes <= 16 << 10; }
  /// Returns the same for a movement that sends a message from each member to each member.
  [[nodiscard]] bool are_few_for_each(std::int64_t bytes) const { return are_few(bytes) && m_.size() <= 32; }

  /// Gathers the blocks and returns the function from a member to its block. In each round, the number of blocks that
  /// a member holds doubles (Bruck).
  auto gather_few(std::int64_t bytes, const std::byte* in) {
    const auto n = m_.size();
    std::byte* const blocks = m_.work.receive_scratch.at_least(bytes * n);  // the block of this member first
    std::copy_n(in, bytes, blocks);
    for (std::int64_t held = 1; held < n; held *= 2) {
      const auto more = bytes * std::min(held, n - held);
      m_.messages().receive((m_.self + held) % n, blocks + held * bytes, more);
      m_.messages().send((m_.self + n - held) % n, blocks, more);
      m_.messages().finish();
    }
    return [=, self = m_.self](std::int64_t j) -> const std::byte* { return blocks + (j + n - self) % n * bytes; };
  }
  void gather(mpi_elements e, std::int64_t elems, const std::byte* in, std::byte* all) {
    if (elems == 0) return;
    const auto n = m_.size(), bytes = elems * e.bytes;
    if (elems * n > m_.work.largest_count || (are_few(bytes * n) && n <= 4)) {
      give_each(
          e, in,
          [&](std::int64_t) {
            return chunk{0, elems};
          },
          all, elems);
    } else if (are_few(bytes * n)) {
      const auto block_of = gather_few(bytes, in);
      for (std::int64_t j = 0; j < n; ++j) std::copy_n(block_of(j), bytes, all + j * bytes);
    } else {
      const int count = static_cast<int>(elems);
      m_.roll_call();
      m_.check(MPI_Allgather(in, count, e.type, all, count, e.type, m_.comm()), "MPI_Allgather");
    }
  }

  void exchange(mpi_elements e, std::int64_t elems, const std::byte* in, std::byte* out) {
    if (elems == 0) return;
    const auto all = elems * m_.size();
    if (all > m_.work.largest_count || are_few_for_each(all * e.bytes))
      return give_each(
          e, in,
          [&](std::int64_t j) {
            return chunk{j * elems, (j + 1) * elems};
          },
          out, elems);
    const int count = static_cast<int>(elems);
    m_.roll_call();
    m_.check(MPI_Alltoall(in, count, e.type, out, count, e.type, m_.comm()), "MPI_Alltoall");
  }
  /// Sends member j the elements part_for(j) of `in`, and receives `elems` elements of member j as block j of `out`.
  template <class PartFor>
  void give_each(mpi_elements e, const std::byte* in, PartFor part_for, std::byte* out, std::int64_t elems) {
    const auto n = m_.size(), bytes = elems * e.bytes;
    for (std::int64_t k = 1; k < n; ++k) {
      const auto from = (m_.self + n - k) % n, to = (m_.self + k) % n;
      const chunk part = part_for(to);
      m_.messages().receive(from, out + from * bytes, elems, e);
      m_.messages().send(to, in + part.begin * e.bytes, part.end - part.begin, e);
    }
    std::copy_n(in + part_for(m_.self).begin * e.bytes, bytes, out + m_.self * bytes);
    m_.messages().finish();
  }

  void exchange_messages(const movement_route& route, mpi_elements e, const std::byte* in, std::byte* out) {
    std::byte* const packed_in = m_.work.send_scratch.at_least(route.memory.send_elems * e.bytes);
    std::byte* const packed_out = m_.work.receive_scratch.at_least(route.memory.receive_elems * e.bytes);
    for (const auto& r : route.receives)
      m_.messages().receive(r.peer, (r.box == no_box ? out : packed_out) + r.at * e.bytes, r.elems, e);
    for (const auto& s : route.sends) {
      if (s.box != no_box) copy_box(packed_in, in, route.boxes[s.box], e.bytes);
      m_.messages().send(s.peer, (s.box == no_box ? in : packed_in) + s.at * e.bytes, s.elems, e);
    }
    for (const int own : route.own) copy_box(out, in, route.boxes[own], e.bytes);
    fill_gaps(route, e.bytes, out);
    m_.messages().finish();
    for (const auto& r : route.receives)
      if (r.box != no_box) copy_box(out, packed_out, route.boxes[r.box], e.bytes);
  }

  /// Sends whole shards to other members. A member waits only for the senders and receivers of its messages; in a
  /// meeting, it would wait for all members.
  ///
  /// A member whose shard is in node_memory sends the address of the shard. The receiver copies the shard and sends
  /// "done". Shards and addresses have the same tag, and receivers distinguish them by length. MPI keeps the order of
  /// messages with the same tag. With two tags, the address of the next shard could overtake a shard.
  void permute(const movement_route& route, mpi_elements e, const std::byte* in, std::byte* out) {
    const auto& memories = m_.work.memories;
    const auto elems = route.shard_elems;
    const auto bytes = elems * e.bytes;
    constexpr int address_bytes = sizeof(node_address);
    if (memories.empty() || !m_.work.shared_memory || elems > m_.work.largest_count || bytes <= m_.work.small_shard_bytes ||
        bytes <= address_bytes)  // the same on all members
      return exchange_messages(route, e, in, out);
    const int count = static_cast<int>(elems);
    const int source = route.receives.empty() ? -1 : static_cast<int>(route.receives[0].peer);  // a shard has one source
    auto messages = m_.messages();
    const auto address = address_of(memories, in);
    const auto reads_in_place = [&](const routed_message& s) { return find(memories, m_.device(s.peer), address) != nullptr; };
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages.send_piece(s.peer, &address, address_bytes);
      else messages.send(s.peer, in, elems, e);
    for (const int own : route.own) copy_box(out, in, route.boxes[own], e.bytes);
    if (source >= 0 && messages.is_next_of(source, address_bytes)) {
      node_address theirs = 0;
      messages.receive_now(source, &theirs, address_bytes);
      copy_shard(out, find(memories, m_.device(source), theirs), bytes);
      messages.send_sign(source, message_kind::done);
    } else if (source >= 0) {
      messages.receive_piece(source, out, count, e);
    }
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages.receive_sign(s.peer, message_kind::done);
    messages.finish();
  }

 private:
  static void fill_gaps(const movement_route& route, std::int64_t bytes_per_elem, std::byte* out) {
    for (const auto& gap : route.gaps) fill_box(out, gap.bits, route.boxes[gap.box], bytes_per_elem);
  }

  mpi_members& m_;
};

}  // namespace gspmd::detail
