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

  template <class T>
  void move_small(const movement_route& route, const T* in, T* out) {
    const auto shard_of = m_.window()->share(in, route.shard_elems);
    fill_gaps(route, out);
    for (const auto& t : route.takes) copy_box(out, t.peer == m_.self ? in : shard_of(t.peer), route.boxes[t.box], sizeof(T));
  }

  /// Returns true for so few bytes, of all members together, that a roll call before an MPI call would take as long
  /// as the call. These movements use gspmd's messages, whose tags have the subject.
  template <class T>
  [[nodiscard]] static constexpr bool are_few(std::int64_t elems) {
    return elems * static_cast<std::int64_t>(sizeof(T)) <= 16 << 10;
  }
  /// Returns the same for a movement that sends a message from each member to each member.
  template <class T>
  [[nodiscard]] bool are_few_for_each(std::int64_t elems) const {
    return are_few<T>(elems) && m_.size() <= 32;
  }

  template <class T>
  void gather(std::int64_t elems, const T* in, T* all) {
    if (elems == 0) return;
    const auto n = m_.size();
    if (elems * n > m_.work.largest_count || (are_few<T>(elems * n) && n <= 4)) {
      give_each(
          in,
          [&](std::int64_t) {
            return chunk{0, elems};
          },
          all, elems);
    } else if (are_few<T>(elems * n)) {
      const auto block_of = gather_few(elems, in);
      for (std::int64_t j = 0; j < n; ++j) std::copy_n(block_of(j), elems, all + j * elems);
    } else {
      const int count = static_cast<int>(elems);
      m_.roll_call();
      m_.check(MPI_Allgather(in, count, mpi_type<T>(), all, count, mpi_type<T>(), m_.comm()), "MPI_Allgather");
    }
  }
  /// Gathers the blocks and returns the function from a member to its block. In each round, the number of blocks that
  /// a member holds doubles (Bruck).
  template <class T>
  auto gather_few(std::int64_t elems, const T* in) {
    const auto n = m_.size();
    T* const blocks = m_.work.receive_scratch.template at_least<T>(elems * n);  // the block of this member first
    std::copy_n(in, elems, blocks);
    for (std::int64_t held = 1; held < n; held *= 2) {
      const auto more = elems * std::min(held, n - held);
      m_.messages().receive((m_.self + held) % n, blocks + held * elems, more);
      m_.messages().send((m_.self + n - held) % n, static_cast<const T*>(blocks), more);
      m_.messages().finish();
    }
    return [=, self = m_.self](std::int64_t j) { return static_cast<const T*>(blocks) + (j + n - self) % n * elems; };
  }

  template <class T>
  void exchange(std::int64_t elems, const T* in, T* out) {
    if (elems == 0) return;
    const auto all = elems * m_.size();
    if (all > m_.work.largest_count || are_few_for_each<T>(all))
      return give_each(
          in,
          [&](std::int64_t j) {
            return chunk{j * elems, (j + 1) * elems};
          },
          out, elems);
    const int count = static_cast<int>(elems);
    m_.roll_call();
    m_.check(MPI_Alltoall(in, count, mpi_type<T>(), out, count, mpi_type<T>(), m_.comm()), "MPI_Alltoall");
  }
  /// Sends member j the elements part_for(j) of `in`, and receives `elems` elements of member j at out + j * elems.
  template <class T, class PartFor>
  void give_each(const T* in, PartFor part_for, T* out, std::int64_t elems) {
    const auto n = m_.size();
    for (std::int64_t k = 1; k < n; ++k) {
      const auto from = (m_.self + n - k) % n, to = (m_.self + k) % n;
      const chunk part = part_for(to);
      m_.messages().receive(from, out + from * elems, elems);
      m_.messages().send(to, in + part.begin, part.end - part.begin);
    }
    std::copy_n(in + part_for(m_.self).begin, elems, out + m_.self * elems);
    m_.messages().finish();
  }

  template <class T>
  void exchange_messages(const movement_route& route, const T* in, T* out) {
    T* const packed_in = m_.work.send_scratch.template at_least<T>(route.memory.send_elems);
    T* const packed_out = m_.work.receive_scratch.template at_least<T>(route.memory.receive_elems);
    for (const auto& r : route.receives) m_.messages().receive(r.peer, (r.box == no_box ? out : packed_out) + r.at, r.elems);
    for (const auto& s : route.sends) {
      if (s.box != no_box) copy_box(packed_in, in, route.boxes[s.box], sizeof(T));
      m_.messages().send(s.peer, (s.box == no_box ? in : packed_in) + s.at, s.elems);
    }
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    fill_gaps(route, out);
    m_.messages().finish();
    for (const auto& r : route.receives)
      if (r.box != no_box) copy_box(out, packed_out, route.boxes[r.box], sizeof(T));
  }

  /// Sends whole shards to other members. A member waits only for the senders and receivers of its messages; in a
  /// meeting, it would wait for all members.
  ///
  /// A member whose shard is in node_memory sends the address of the shard. The receiver copies the shard and sends
  /// "done". Shards and addresses have the same tag, and receivers distinguish them by length. MPI keeps the order of
  /// messages with the same tag. With two tags, the address of the next shard could overtake a shard.
  template <class T>
  void permute(const movement_route& route, const T* in, T* out) {
    const auto& memories = m_.work.memories;
    const auto elems = route.shard_elems;
    const auto bytes = elems * static_cast<std::int64_t>(sizeof(T)),
               address_bytes = static_cast<std::int64_t>(sizeof(node_address));
    if (memories.empty() || !m_.work.shared_memory || elems > m_.work.largest_count || bytes <= m_.work.small_shard_bytes ||
        bytes <= address_bytes)  // the same on all members
      return exchange_messages(route, in, out);
    const int count = static_cast<int>(elems);
    const int source = route.receives.empty() ? -1 : static_cast<int>(route.receives[0].peer);  // a shard has one source
    auto messages = m_.messages();
    const auto address = address_of(memories, in);
    const auto reads_in_place = [&](const routed_message& s) { return find(memories, m_.device(s.peer), address) != nullptr; };
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages.send_piece(s.peer, &address, 1);
      else messages.send(s.peer, in, elems);
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    if (source >= 0 && messages.is_next_of(source, address_bytes)) {
      node_address theirs = 0;
      messages.receive_now(source, &theirs);
      copy_shard(out, find(memories, m_.device(source), theirs), bytes);
      messages.send_piece(source, out, 0, message_kind::done);
    } else if (source >= 0) {
      messages.receive_piece(source, out, count);
    }
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages.template receive_piece<T>(s.peer, nullptr, 0, message_kind::done);
    messages.finish();
  }

 private:
  template <class T>
  static void fill_gaps(const movement_route& route, T* out) {
    for (const auto& gap : route.gaps) fill_box(out, gap.bits, route.boxes[gap.box], sizeof(T));
  }

  mpi_members& m_;
};

}  // namespace gspmd::detail
