// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/message_route.hpp"
#include "gspmd/detail/transport/mpi/members.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"

namespace gspmd::detail {

/// The reductions of a group that are started, not yet finished and use messages. Any number may be started. Each
/// reduction has two halves:
///
///   terms      In start(), a member sends each peer its partial values of the peer's part, directly from the input. It
///              posts receives for the peers' partial values of its own part.
///   results    A member that has received all partial values of its part reduces them in the order of the members.
///              For a reduce_scatter this is the result. For an all_reduce the member sends the result to each peer,
///              and posts receives for the results of the peers.
///
/// No member waits between start() and finish(). MPI carries the messages, and go_on() begins the second half when
/// the first half is complete. MPI_Iallreduce is not used: before it is called, all members must have arrived for the
/// same collective, so each member would wait for the last one. Also, MPI may reduce in another order.
///
/// Messages of the same half have the same tag if they belong to the same line of the program. So the halves are
/// begun in the order of the starts: MPI matches messages with the same tag in the order of the sends and receives.
///
///   memory                       its owner writes              MPI, and so the peers, access     until
///   input                        before start                  from start                        the first half ends
///   own part of the output       when the first half ends      from the end of the first half    finish ends
///   peers' parts of the output   never                         from the end of the first half    finish ends
///   partial values, and input    in start                      from start                        the first half ends
///     that is packed
class mpi_started_reductions {
 public:
  explicit mpi_started_reductions(mpi_members& members) : m_(members) {}

  /// Starts a reduction by messages. Must be called after begin() of the members for its subject. For an all_reduce
  /// `out` may be `in`.
  void start(const reduction_route& route, const row_combiner& op, const void* in, void* out) {
    if (free_.empty()) free_.emplace_back();
    under_way_.splice(under_way_.end(), free_, free_.begin());
    auto& u = under_way_.back();
    u.channel = m_.channel();
    u.route = &route;
    u.op = op;
    u.in = static_cast<const std::byte*>(in);
    u.out = static_cast<std::byte*>(out);
    u.has_results = false;
    post_terms(u);
  }
  /// Starts a reduction of members that share a node and memory: publishes the addresses and does not wait. In
  /// finish() all members access the buffers in place (meeting.hpp). If a buffer is not in shared memory, finish()
  /// uses messages instead. No other collective of the group may be started.
  void show(const mesh_shape& mesh, const reduction& r, const reduction_route& route, const row_combiner& op, const void* in,
            void* out) {
    shown_ = {&mesh, &r, &route, op, in, out};
    const auto& memories = m_.work.memories;
    m_.window()->arrive_with(
        mpi_members::addresses<2>{{address_of(memories, in), route.scatters ? 0 : address_of(memories, out)}});
  }
  /// Begins the second half of each reduction, in order, until a reduction whose first half is not complete.
  void go_on() {
    for (auto& u : under_way_) {
      if (u.has_results) continue;
      if (!messages_of(u).are_over()) return;
      begin_results(u);
    }
  }
  /// Finishes the started reductions in order, up to the reduction that fills `out`. If `out` is null, finishes all.
  void finish(const void* out = nullptr) {
    if (shown_.route != nullptr && (out == nullptr || shown_.out == out)) finish_shown();
    if (out != nullptr && !fills(out)) return;
    for (bool is_last = false; !is_last && !under_way_.empty();) {
      auto& u = under_way_.front();
      is_last = out != nullptr && u.out == out;
      try {
        messages_of(u).finish();
        if (!u.has_results) begin_results(u);
        go_on();
        messages_of(u).finish();
      } catch (...) {  // the other reductions would fail too
        for (auto& other : under_way_) messages_of(other).abandon();
        free_.splice(free_.end(), under_way_);
        throw;
      }
      free_.splice(free_.end(), under_way_, under_way_.begin());
    }
  }

 private:
  [[nodiscard]] bool fills(const void* out) const {
    return std::any_of(under_way_.begin(), under_way_.end(), [&](const one_under_way& u) { return u.out == out; });
  }
  struct one_under_way {
    mpi_channel channel;
    const reduction_route* route = nullptr;
    row_combiner op{};
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    bool has_results = false;
    growing_buffer terms, packed;  // terms: the partial values of the own part, by member; packed: the own input, by member
    std::vector<mpi_request> requests;
  };

  [[nodiscard]] mpi_messages messages_of(one_under_way& u) { return {u.channel, m_.work, u.requests}; }
  /// Returns the part of member j, in bytes, of the input or of the packed input.
  [[nodiscard]] chunk part_of(const one_under_way& u, std::int64_t j) const {
    const auto width = u.op.elem_bytes;
    const auto& at = u.route->offsets;
    const auto part = u.route->scatters ? chunk{at[static_cast<std::size_t>(j)], at[static_cast<std::size_t>(j) + 1]}
                                        : chunk_of(u.route->elems, width, m_.size(), j);
    return {part.begin * width, part.end * width};
  }
  [[nodiscard]] bool is_packed(const one_under_way& u) const { return u.route->scatters && !u.route->is_stacked; }

  void post_terms(one_under_way& u) {
    const auto mine = part_of(u, m_.self);
    const auto bytes = mine.end - mine.begin;
    auto* const terms = u.terms.at_least(bytes * m_.size());
    const std::byte* from = u.in;
    if (is_packed(u)) {
      auto* const packed = u.packed.at_least(u.route->offsets.back() * u.op.elem_bytes);
      for (const int box : u.route->packs) copy_box(packed, u.in, u.route->boxes[box], u.op.elem_bytes);
      from = packed;
    }
    auto messages = messages_of(u);
    for (std::int64_t k = 1; k < m_.size(); ++k) {
      const auto giver = (m_.self + m_.size() - k) % m_.size(), taker = (m_.self + k) % m_.size();
      const auto theirs = part_of(u, taker);
      messages.receive(giver, terms + giver * bytes, bytes);
      messages.send(taker, from + theirs.begin, theirs.end - theirs.begin);
    }
    if (bytes > 0) std::copy_n(from + mine.begin, bytes, terms + m_.self * bytes);
  }

  /// Begins the second half. All partial values must have arrived.
  void begin_results(one_under_way& u) {
    const auto mine = part_of(u, m_.self);
    const auto bytes = mine.end - mine.begin;
    const auto* const terms = u.terms.at_least(0);
    auto* const result = is_packed(u) ? u.packed.at_least(0) : u.route->scatters ? u.out : u.out + mine.begin;
    u.has_results = true;
    if (bytes > 0)
      reduce_row(
          u.op, result, m_.size(), [&](std::int64_t j) { return terms + j * bytes; }, 0, bytes / u.op.elem_bytes, false);
    if (u.route->scatters) {
      if (is_packed(u) && u.route->own != no_box) copy_box(u.out, result, u.route->boxes[u.route->own], u.op.elem_bytes);
      return;
    }
    auto messages = messages_of(u);
    for (std::int64_t k = 1; k < m_.size(); ++k) {
      const auto giver = (m_.self + m_.size() - k) % m_.size(), taker = (m_.self + k) % m_.size();
      const auto theirs = part_of(u, giver);
      messages.receive(giver, u.out + theirs.begin, theirs.end - theirs.begin, {}, message_kind::done);
      messages.send(taker, result, bytes, {}, message_kind::done);
    }
  }

  void finish_shown() {
    const auto s = std::exchange(shown_, {});
    const bool scatters = s.route->scatters;
    if (!m_.find_shown<2>(m_.window()->wait(), scatters ? 1 : 2)) {
      start(*s.route, s.op, s.in, s.out);
      return finish();
    }
    if (scatters) reduce_scatter_from_peers(s.op, *s.mesh, *s.r, m_.me, m_.shown(0), s.out);
    else all_reduce_from_peers(s.op, s.route->elems, m_.size(), m_.self, m_.shown(0), m_.shown(1));
    m_.window()->meet();
  }

  struct shown_reduction {
    const mesh_shape* mesh = nullptr;
    const reduction* r = nullptr;
    const reduction_route* route = nullptr;  // null: no reduction is shown
    row_combiner op{};
    const void* in = nullptr;
    void* out = nullptr;
  };
  mpi_members& m_;
  shown_reduction shown_;
  std::list<one_under_way> under_way_, free_;  // started ones, in the order of start; memory for new ones
};

}  // namespace gspmd::detail
