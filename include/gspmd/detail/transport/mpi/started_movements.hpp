// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The started and not yet finished movements of a group. If they use messages, any number of lists may be started,
/// together with other started collectives. If the members share a node, at most one list is started, and it finishes
/// before any other collective of the group begins.
class mpi_started_movements {
 public:
  explicit mpi_started_movements(mpi_members& members) : m_(members) {}

  /// Starts movements, and does not wait for other members if the parts are copied between buffers or sent as
  /// messages. Returns false, and does nothing, if the movements cannot be started.
  ///
  ///   if arenas are shared       publishes the addresses. finish waits for the members' addresses, copies and
  ///                              synchronises. If some buffer is not in shared memory, all movements use messages: a
  ///                              member with a private buffer posts them in start, the other members in finish
  ///   by messages                posts one message to each member, from and into memory of this object. finish waits
  ///                              and copies all elements into the results
  ///   small, on one node         copies all shards through the window, in one meeting, before start returns
  bool start(const mesh_shape& mesh, span<const movement> all, const movement_route* const* routes, dtype type,
             const void* const* in, void* const* out) {
    if (m_.size() == 1) return false;
    m_.begin(subject_of(mesh, all[0], type));
    if (free_.empty()) free_.emplace_back();
    auto& u = free_.front();
    u.channel = m_.channel();
    u.mesh = &mesh;
    u.all = all;
    u.elem_bytes = bytes_of(type);
    u.is_posted = false;
    std::int64_t shards = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      u.routes[k] = routes[k];
      u.in[k] = in[k];
      u.out[k] = out[k];
      shards += routes[k]->shard_elems * u.elem_bytes;
    }
    u.meets = m_.window() != nullptr;
    if (u.meets && shards <= (m_.work.memories.empty() ? node_window::half_bytes : m_.work.small_shard_bytes)) {
      move_small_together(u);
      return true;
    }
    if (u.meets && m_.work.memories.empty()) return false;
    under_way_.splice(under_way_.end(), free_, free_.begin());
    if (!u.meets) {
      post_together(u);
      return true;
    }
    mpi_members::addresses<most_moved_together> mine{};
    for (std::size_t k = 0; k < u.all.size(); ++k) mine.of[k] = address_of(m_.work.memories, u.in[k]);
    m_.window()->arrive_with(mine);
    for (std::size_t k = 0; k < u.all.size() && !u.is_posted; ++k)
      if (mine.of[k] == 0) {
        u.is_posted = true;
        post_together(u);
      }
    return true;
  }
  /// Finishes the started lists in order, up to the list that fills `out`. Does nothing if no list fills `out`. If
  /// `out` is null, finishes all.
  void finish(const void* out = nullptr) {
    if (out != nullptr && !fills(out)) return;
    for (bool is_last = false; !is_last && !under_way_.empty();) {
      is_last = out != nullptr && under_way_.front().out[0] == out;
      try {
        end(under_way_.front());
      } catch (...) {
        for (auto& other : under_way_) messages_of(other).abandon();
        free_.splice(free_.end(), under_way_);
        throw;
      }
      free_.splice(free_.end(), under_way_, under_way_.begin());
    }
  }
  /// Lets MPI progress the started movements, without waiting.
  void go_on() {
    for (auto& u : under_way_)
      if (!u.meets && !messages_of(u).are_over()) return;
  }

 private:
  struct movement_list {
    mpi_channel channel;
    const mesh_shape* mesh = nullptr;
    span<const movement> all;
    const movement_route* routes[most_moved_together];
    const void* in[most_moved_together];
    void* out[most_moved_together];
    std::int64_t elem_bytes = 0;
    bool meets = false;  // synchronise in the window; false: use messages
    bool is_posted = false;
    growing_buffer send, receive;
    std::vector<mpi_request> requests;
  };

  [[nodiscard]] bool fills(const void* out) const {
    return std::any_of(under_way_.begin(), under_way_.end(), [&](const movement_list& u) { return u.out[0] == out; });
  }
  [[nodiscard]] mpi_messages messages_of(movement_list& u) { return {u.channel, m_.work, u.requests}; }
  void end(movement_list& u) {
    if (!u.meets) return take_together(u);
    if (!m_.find_shown<most_moved_together>(m_.window()->wait(), u.all.size())) {
      if (!u.is_posted) post_together(u);
      return take_together(u);
    }
    for (std::size_t k = 0; k < u.all.size(); ++k) move_from_peers(*u.mesh, u.all[k], m_.me, m_.shown(k), u.out[k], u.elem_bytes);
    m_.window()->meet();
  }

  /// Calls visit(k, message, at) for the parts of the messages to or from each member, of all movements, and
  /// end(member, at, elems) for each message. `at` is the offset in the packed messages, which are one after the
  /// other.
  template <class Visit, class End>
  void for_each_message(const movement_list& u, std::vector<routed_message> movement_route::*list, Visit visit, End end) const {
    std::int64_t at = 0;
    for (std::int64_t j = 0; j < m_.size(); ++j) {
      const auto begin = at;
      for (std::size_t k = 0; k < u.all.size(); ++k)
        for (const auto& part : u.routes[k]->*list)
          if (part.peer == j) {
            visit(k, part, at);
            at += part.elems;
          }
      if (at > begin) end(j, begin, at - begin);
    }
  }
  [[nodiscard]] std::int64_t elems_of(const movement_list& u, std::vector<routed_message> movement_route::*list) const {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < u.all.size(); ++k)
      for (const auto& part : u.routes[k]->*list) sum += part.elems;
    return sum;
  }
  /// The shards of a member are one after the other in the window, at the same offsets for each member.
  void move_small_together(const movement_list& u) {
    const auto width = u.elem_bytes;
    const auto shards_of = m_.window()->show([&](std::byte* memory) {
      for (std::size_t k = 0; k < u.all.size(); ++k)
        memory = std::copy_n(static_cast<const std::byte*>(u.in[k]), u.routes[k]->shard_elems * width, memory);
    });
    std::int64_t begin = 0;
    for (std::size_t k = 0; k < u.all.size(); ++k) {
      const auto& route = *u.routes[k];
      for (const auto& gap : route.gaps) fill_box(u.out[k], gap.bits, route.boxes[gap.box], width);
      for (const auto& t : route.takes)
        copy_box(u.out[k], t.peer == m_.self ? u.in[k] : shards_of(t.peer) + begin, route.boxes[t.box], width);
      begin += route.shard_elems * width;
    }
  }
  void post_together(movement_list& u) {
    const auto width = u.elem_bytes;
    auto* const received = u.receive.at_least(elems_of(u, &movement_route::receives) * width);
    auto* const sent = u.send.at_least(elems_of(u, &movement_route::sends) * width);
    for_each_message(
        u, &movement_route::receives, [](std::size_t, const routed_message&, std::int64_t) {},
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) {
          messages_of(u).receive(j, received + at * width, elems * width);
        });
    for_each_message(
        u, &movement_route::sends,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          const auto* const in = static_cast<const std::byte*>(u.in[k]);
          if (part.box == no_box) std::copy_n(in + part.at * width, part.elems * width, sent + at * width);
          else copy_box(sent + (at - part.at) * width, in, u.routes[k]->boxes[part.box], width);
        },
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) { messages_of(u).send(j, sent + at * width, elems * width); });
    for (std::size_t k = 0; k < u.all.size(); ++k) {
      const auto& route = *u.routes[k];
      for (const int own : route.own) copy_box(u.out[k], u.in[k], route.boxes[own], width);
      for (const auto& gap : route.gaps) fill_box(u.out[k], gap.bits, route.boxes[gap.box], width);
    }
  }
  void take_together(movement_list& u) {
    messages_of(u).finish();
    const auto width = u.elem_bytes;
    const auto* const received = u.receive.at_least(elems_of(u, &movement_route::receives) * width);
    for_each_message(
        u, &movement_route::receives,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          auto* const out = static_cast<std::byte*>(u.out[k]);
          if (part.box == no_box) std::copy_n(received + at * width, part.elems * width, out + part.at * width);
          else copy_box(out, received + (at - part.at) * width, u.routes[k]->boxes[part.box], width);
        },
        [](std::int64_t, std::int64_t, std::int64_t) {});
  }

  mpi_members& m_;
  std::list<movement_list> under_way_, free_;  // started ones, in the order of start; memory for new ones
};

}  // namespace gspmd::detail
