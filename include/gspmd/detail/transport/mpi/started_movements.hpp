// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// Movements of a group that were begun and not ended: one list at most; whatever else the group is to do comes after.
class mpi_started_movements {
 public:
  explicit mpi_started_movements(mpi_members& members) : m_(members) {}

  /// Begins movements and does not wait for the others, where their parts go from buffer to buffer or by messages. False where they are
  /// not to be started, and nothing is done.
  ///
  ///   where arenas are shared     the addresses are shown; finish waits for the others', copies and meets them. Where one lies in no memory
  ///                               that is shared, all go by messages: who knows it of its own posts them at once, the others in finish
  ///   by messages                 one to each member is posted, from and into memory of the group's own; finish waits and copies
  ///                               everything to its place
  ///   small, on one node          all shards go through the window, in one meeting, before start returns
  bool start(const mesh_shape& mesh, span<const movement> all, const movement_route* const* routes, const void* const* in,
             void* const* out, dtype type, std::int64_t elem_bytes) {
    auto& u = under_way_;
    u = {&mesh, all, {}, {}, {}, elem_bytes, false, false, false};
    for (std::size_t k = 0; k < all.size(); ++k) {
      u.routes[k] = routes[k];
      u.in[k] = in[k];
      u.out[k] = out[k];
    }
    if (m_.size() == 1) return false;
    m_.begin(subject_of(*u.mesh, u.all[0], type));
    u.meets = m_.window() != nullptr;
    std::int64_t shards = 0;
    for (std::size_t k = 0; k < u.all.size(); ++k) shards += u.routes[k]->shard_elems * u.elem_bytes;
    if (u.meets && shards <= (m_.work.memories.empty() ? node_window::half_bytes : m_.work.small_shard_bytes)) {
      move_small_together();
      return true;
    }
    if (u.meets && m_.work.memories.empty()) return false;
    mpi_members::addresses<most_moved_together> mine{};
    for (std::size_t k = 0; k < u.all.size(); ++k) mine.of[k] = address_of(m_.work.memories, u.in[k]);
    u.is_any = true;
    if (!u.meets) {
      post_together();
      return true;
    }
    m_.window()->arrive_with(mine);
    for (std::size_t k = 0; k < u.all.size() && !u.is_posted; ++k)
      if (mine.of[k] == 0) {
        u.is_posted = true;
        post_together();
      }
    return true;
  }
  /// Ends what is under way, if anything is.
  void finish() {
    const auto& u = under_way_;
    if (!std::exchange(under_way_.is_any, false)) return;
    if (!u.meets) return take_together();
    if (!m_.find_shown<most_moved_together>(m_.window()->wait(), u.all.size())) {
      if (!u.is_posted) post_together();
      return take_together();
    }
    for (std::size_t k = 0; k < u.all.size(); ++k) move_from_peers(*u.mesh, u.all[k], m_.me, m_.shown(k), u.out[k], u.elem_bytes);
    m_.window()->meet();
  }
  [[nodiscard]] bool fills(const void* out) const { return under_way_.is_any && under_way_.out[0] == out; }

 private:
  [[nodiscard]] mpi_messages own_messages() { return m_.messages(requests_); }

  /// Calls visit(k, message, at) for the parts of the messages to or from each member, of all movements, where they lie one after the
  /// other, and end(member, at, elems) for each message.
  template <class Visit, class End>
  void for_each_message(std::vector<routed_message> movement_route::*list, Visit visit, End end) const {
    std::int64_t at = 0;
    for (std::int64_t j = 0; j < m_.size(); ++j) {
      const auto begin = at;
      for (std::size_t k = 0; k < under_way_.all.size(); ++k)
        for (const auto& part : under_way_.routes[k]->*list)
          if (part.peer == j) {
            visit(k, part, at);
            at += part.elems;
          }
      if (at > begin) end(j, begin, at - begin);
    }
  }
  [[nodiscard]] std::int64_t elems_of(std::vector<routed_message> movement_route::*list) const {
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < under_way_.all.size(); ++k)
      for (const auto& part : under_way_.routes[k]->*list) sum += part.elems;
    return sum;
  }
  /// All shards of a member lie in the window one after the other, at the same places in each.
  void move_small_together() {
    const auto& u = under_way_;
    const auto width = u.elem_bytes;
    const auto shards_of = m_.window()->show<std::byte>([&](std::byte* memory) {
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
  void post_together() {
    const auto& u = under_way_;
    const auto width = u.elem_bytes;
    auto* const received = receive_.at_least<std::byte>(elems_of(&movement_route::receives) * width);
    auto* const sent = send_.at_least<std::byte>(elems_of(&movement_route::sends) * width);
    for_each_message(
        &movement_route::receives, [](std::size_t, const routed_message&, std::int64_t) {},
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) {
          own_messages().receive(j, received + at * width, elems * width);
        });
    for_each_message(
        &movement_route::sends,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          const auto* const in = static_cast<const std::byte*>(u.in[k]);
          if (part.box == no_box) std::copy_n(in + part.at * width, part.elems * width, sent + at * width);
          else copy_box(sent + (at - part.at) * width, in, u.routes[k]->boxes[part.box], width);
        },
        [&](std::int64_t j, std::int64_t at, std::int64_t elems) {
          own_messages().send(j, static_cast<const std::byte*>(sent + at * width), elems * width);
        });
    for (std::size_t k = 0; k < u.all.size(); ++k) {
      const auto& route = *u.routes[k];
      for (const int own : route.own) copy_box(u.out[k], u.in[k], route.boxes[own], width);
      for (const auto& gap : route.gaps) fill_box(u.out[k], gap.bits, route.boxes[gap.box], width);
    }
  }
  void take_together() {
    own_messages().finish();
    const auto width = under_way_.elem_bytes;
    const auto* const received = receive_.at_least<std::byte>(elems_of(&movement_route::receives) * width);
    for_each_message(
        &movement_route::receives,
        [&](std::size_t k, const routed_message& part, std::int64_t at) {
          auto* const out = static_cast<std::byte*>(under_way_.out[k]);
          if (part.box == no_box) std::copy_n(received + at * width, part.elems * width, out + part.at * width);
          else copy_box(out, received + (at - part.at) * width, under_way_.routes[k]->boxes[part.box], width);
        },
        [](std::int64_t, std::int64_t, std::int64_t) {});
  }

  mpi_members& m_;
  struct movement_list {
    const mesh_shape* mesh = nullptr;
    span<const movement> all;
    const movement_route* routes[most_moved_together];
    const void* in[most_moved_together];
    void* out[most_moved_together];
    std::int64_t elem_bytes = 0;
    bool meets = false;  // in the window; else they go by messages
    bool is_posted = false;
    bool is_any = false;
  };
  movement_list under_way_{};
  growing_buffer send_, receive_;  // of messages under way
  std::vector<mpi_request> requests_;
};

}  // namespace gspmd::detail
