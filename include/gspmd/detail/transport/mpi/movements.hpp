// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

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
    if (elems == 0) return;
    if (elems * m_.size() <= m_.work.largest_count) {
      const int count = static_cast<int>(elems);
      m_.check(MPI_Allgather(in, count, mpi_type<T>(), all, count, mpi_type<T>(), m_.comm), "MPI_Allgather");
      return;
    }
    for (std::int64_t j = 0; j < m_.size(); ++j) {
      m_.messages().receive(j, all + j * elems, elems);
      m_.messages().send(j, in, elems);
    }
    m_.messages().finish();
  }

  template <class T>
  void exchange(std::int64_t elems, const T* in, T* out) {
    if (elems * m_.size() <= m_.work.largest_count) {
      const int count = static_cast<int>(elems);
      m_.check(MPI_Alltoall(in, count, mpi_type<T>(), out, count, mpi_type<T>(), m_.comm), "MPI_Alltoall");
      return;
    }
    for (std::int64_t j = 0; j < m_.size(); ++j) {
      m_.messages().receive(j, out + j * elems, elems);
      m_.messages().send(j, in + j * elems, elems);
    }
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

  /// Members that have nothing to do with each other do not wait for each other, as they would in a meeting. Who sends a shard
  /// that lies in node_memory sends its address instead, and hears when it was copied from there.
  template <class T>
  void permute(const movement_route& route, const T* in, T* out) {
    constexpr int address_tag = 1, done_tag = 2,
                  address_elems = static_cast<int>((sizeof(node_address) + sizeof(T) - 1) / sizeof(T));
    const auto& memories = m_.work.memories;
    const auto elems = route.shard_elems;
    const auto bytes = elems * static_cast<std::int64_t>(sizeof(T)),
               address_bytes = static_cast<std::int64_t>(sizeof(node_address));
    if (memories.empty() || !m_.work.shared_memory || elems > m_.work.largest_count || bytes <= m_.work.small_shard_bytes ||
        bytes < address_bytes)  // on all members alike
      return exchange_messages(route, in, out);
    const int count = static_cast<int>(elems);
    MPI_Request arrives = MPI_REQUEST_NULL;
    const int source = route.receives.empty() ? -1 : static_cast<int>(route.receives[0].peer);  // a shard has one
    if (source >= 0) m_.check(MPI_Irecv(out, count, mpi_type<T>(), source, MPI_ANY_TAG, m_.comm, &arrives), "MPI_Irecv");
    const auto address = address_of(memories, in);
    T address_message[address_elems]{};
    std::memcpy(address_message, &address, sizeof address);
    const auto reads_in_place = [&](const routed_message& s) { return find(memories, m_.device(s.peer), address) != nullptr; };
    for (const auto& s : route.sends)
      if (reads_in_place(s)) m_.messages().send_piece(s.peer, address_message, address_elems, address_tag);
      else m_.messages().send(s.peer, in, elems);
    for (const int own : route.own) copy_box(out, in, route.boxes[own], sizeof(T));
    MPI_Status status;
    m_.check(MPI_Wait(&arrives, &status), "MPI_Wait");
    if (source >= 0 && status.MPI_TAG == address_tag) {
      node_address theirs = 0;
      std::memcpy(&theirs, out, sizeof theirs);
      copy_shard(out, find(memories, m_.device(source), theirs), bytes);
      m_.messages().send_piece(source, out, 0, done_tag);
    }
    for (const auto& s : route.sends)
      if (reads_in_place(s))
        m_.check(MPI_Recv(nullptr, 0, mpi_type<T>(), static_cast<int>(s.peer), done_tag, m_.comm, MPI_STATUS_IGNORE), "MPI_Recv");
    m_.messages().finish();
  }

 private:
  template <class T>
  static void fill_gaps(const movement_route& route, T* out) {
    for (const auto& gap : route.gaps) fill_box(out, gap.bits, route.boxes[gap.box], sizeof(T));
  }

  mpi_members& m_;
};

}  // namespace gspmd::detail
