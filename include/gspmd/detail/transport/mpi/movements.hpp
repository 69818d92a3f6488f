// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The ways in which one movement goes between the members of a group; mpi_group chooses among them.
class mpi_movements {
 public:
  explicit mpi_movements(mpi_members& members) : m_(members) {}

  template <class T>
  void move_small(const movement_route& route, const T* in, T* out) {
    const auto shard_of = m_.window()->share(in, route.shard_elems);
    fill_gaps(route, out);
    for (const auto& t : route.takes) copy_box(out, t.peer == m_.self ? in : shard_of(t.peer), route.boxes[t.box], sizeof(T));
  }

  template <class T>
  void gather(std::int64_t elems, const T* in, T* all) {
    const auto n = m_.size();
    if (elems == 0) return;
    if (goes_directly<T>(elems)) {
      copy_directly(elems, all, [&](std::int64_t) { return in; });
    } else if (is_small_gather(elems * n * static_cast<std::int64_t>(sizeof(T)))) {
      const T* const blocks = gather_small(elems, in);
      const auto behind = n - m_.self;  // blocks of this member and those after it
      std::copy_n(blocks, behind * elems, all + m_.self * elems);
      std::copy_n(blocks + behind * elems, m_.self * elems, all);
    } else {
      const int count = static_cast<int>(elems);
      m_.roll_call();
      m_.check(MPI_Allgather(in, count, mpi_type<T>(), all, count, mpi_type<T>(), m_.comm()), "MPI_Allgather");
    }
  }

  /// So few bytes of all members that a roll call before a call of MPI would take longer than the call.
  [[nodiscard]] bool is_small_gather(std::int64_t bytes) const {
    return bytes <= most_gathered_bytes && m_.work.largest_count >= bytes;
  }
  /// The blocks of all members, from that of this one on: in each round twice as many (Bruck).
  template <class T>
  const T* gather_small(std::int64_t elems, const T* in) {
    const auto n = m_.size();
    T* const blocks = gathered_.template at_least<T>(elems * n);
    std::copy_n(in, elems, blocks);
    auto messages = m_.messages();
    for (std::int64_t held = 1; held < n; held *= 2) {
      const auto count = static_cast<int>(elems * std::min(held, n - held));
      messages.receive_piece((m_.self + held) % n, blocks + held * elems, count);
      messages.send_piece((m_.self + n - held) % n, static_cast<const T*>(blocks), count);
      messages.finish();
    }
    return blocks;
  }

  template <class T>
  void exchange(std::int64_t elems, const T* in, T* out) {
    if (elems == 0) return;
    if (goes_directly<T>(elems)) return copy_directly(elems, out, [&](std::int64_t j) { return in + j * elems; });
    const int count = static_cast<int>(elems);
    m_.roll_call();
    m_.check(MPI_Alltoall(in, count, mpi_type<T>(), out, count, mpi_type<T>(), m_.comm()), "MPI_Alltoall");
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

  /// Members that have nothing to do with each other do not wait for each other, as they would in a meeting. Who sends a shard
  /// that lies in node_memory sends its address instead, and hears when it was copied from there.
  template <class T>
  void permute(const movement_route& route, const T* in, T* out) {
    const auto& memories = m_.work.memories;
    const auto elems = route.shard_elems;
    const auto bytes = elems * static_cast<std::int64_t>(sizeof(T)),
               address_bytes = static_cast<std::int64_t>(sizeof(node_address));
    if (memories.empty() || !m_.work.shared_memory || elems > m_.work.largest_count || bytes <= m_.work.small_shard_bytes ||
        bytes < address_bytes)  // on all members alike
      return exchange_messages(route, in, out);
    const int count = static_cast<int>(elems);
    const int source = route.receives.empty() ? -1 : static_cast<int>(route.receives[0].peer);  // a shard has one
    auto messages = m_.messages();
    const auto address = address_of(memories, in);
    const auto reads_in_place = [&](const routed_message& s) { return find(memories, m_.device(s.peer), address) != nullptr; };
    for (const auto& s : route.sends)
      if (reads_in_place(s)) messages.send_piece(s.peer, &address, 1, message_kind::address);
      else messages.send(s.peer, in, elems);
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    if (source >= 0 && messages.next_from(source) == message_kind::address) {
      node_address theirs = 0;
      messages.receive_now(source, &theirs, message_kind::address);
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

  static constexpr std::int64_t most_gathered_bytes = 16 << 10;

  /// Blocks go from each member to each: where these are few and small, for which messages of our own take as long as a call of MPI and
  /// need no roll call, and where MPI cannot count them.
  template <class T>
  [[nodiscard]] bool goes_directly(std::int64_t elems) const {
    constexpr std::int64_t most_members = 4, most_direct_bytes = 256 << 10;
    const auto all = elems * m_.size();
    return all > m_.work.largest_count ||
           (m_.size() <= most_members && all * static_cast<std::int64_t>(sizeof(T)) <= most_direct_bytes);
  }
  /// Block j of `out` is what member j has for this one; `block_for(j)` is what this one has for j.
  template <class T, class BlockFor>
  void copy_directly(std::int64_t elems, T* out, BlockFor block_for) {
    const auto n = m_.size();
    auto messages = m_.messages();
    for (std::int64_t k = 1; k < n; ++k) {
      const auto from = (m_.self + n - k) % n, to = (m_.self + k) % n;
      messages.receive(from, out + from * elems, elems);
      messages.send(to, block_for(to), elems);
    }
    std::copy_n(block_for(m_.self), elems, out + m_.self * elems);
    messages.finish();
  }

  mpi_members& m_;
  growing_buffer gathered_;
};

}  // namespace gspmd::detail
