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

/// Reductions of a group by messages that were begun and not ended, any number of them. Each goes in two halves:
///
///   terms      who starts sends every member what it has of that one's part, from where it lies, and asks for what they have of its own
///   results    who has all terms of its part adds them up in the order of the members. Of a reduce_scatter that is all; of an
///              all_reduce it sends the sum to every member and asks for theirs
///
/// No member waits between start() and finish(): MPI carries the messages, and go_on() begins the second half where the first is over.
/// MPI_Iallreduce would have to know at the start that all members have come for the same, which is a wait for the last of them, and adds
/// in an order of its own.
///
/// Messages of the same half have one tag where they are for the same line of the program, so halves are begun in the order in which the
/// reductions were: MPI matches messages of one tag in the order in which they are sent and asked for.
///
///   memory                          its owner writes                MPI, and so the others, read and write     until when
///   input                           before start                    from start                                 the end of the terms
///   own part of the output          at the end of the terms         from then                                  finish ends
///   the others' parts of it         never                           from the end of the terms                  finish ends
///   terms, and input that is        in start                        from start                                 the end of the terms
///     packed
class mpi_started_reductions {
 public:
  explicit mpi_started_reductions(mpi_members& members) : m_(members) {}

  /// The members have begun() for the subject. `out` may be `in` where it is an all_reduce.
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
  /// The same where the members share a node and memory: the addresses are shown, nothing waits, and in finish() all read in place
  /// (meeting.hpp). Where a buffer lies in no memory that is shared, they go by messages then. Nothing else is under way.
  void show(const mesh_shape& mesh, const reduction& r, const reduction_route& route, const row_combiner& op, const void* in,
            void* out) {
    shown_ = {&mesh, &r, &route, op, in, out};
    const auto& memories = m_.work.memories;
    m_.window()->arrive_with(
        mpi_members::addresses<2>{{address_of(memories, in), route.scatters ? 0 : address_of(memories, out)}});
  }
  /// Begins second halves, as far as first ones are over.
  void go_on() {
    for (auto& u : under_way_) {
      if (u.has_results) continue;
      if (!messages_of(u).are_over()) return;
      begin_results(u);
    }
  }
  /// Ends those that were started, up to the one that fills `out`; all of them where it is null.
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
      } catch (...) {  // the others' would fail alike
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
    growing_buffer terms, packed;  // what the members have of the own part, by member; the own input by member
    std::vector<mpi_request> requests;
  };

  [[nodiscard]] mpi_messages messages_of(one_under_way& u) { return {u.channel, m_.work, u.requests}; }
  /// In bytes, of the input or of what is packed.
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
    auto* const terms = u.terms.at_least<std::byte>(bytes * m_.size());
    const std::byte* from = u.in;
    if (is_packed(u)) {
      auto* const packed = u.packed.at_least<std::byte>(u.route->offsets.back() * u.op.elem_bytes);
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

  /// The terms are there.
  void begin_results(one_under_way& u) {
    const auto mine = part_of(u, m_.self);
    const auto bytes = mine.end - mine.begin;
    const auto* const terms = u.terms.at_least<std::byte>(0);
    auto* const result = is_packed(u) ? u.packed.at_least<std::byte>(0) : u.route->scatters ? u.out : u.out + mine.begin;
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
      messages.receive(giver, u.out + theirs.begin, theirs.end - theirs.begin, message_kind::done);
      messages.send(taker, static_cast<const std::byte*>(result), bytes, message_kind::done);
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
    const reduction_route* route = nullptr;  // none: nothing is shown
    row_combiner op{};
    const void* in = nullptr;
    void* out = nullptr;
  };
  mpi_members& m_;
  shown_reduction shown_;
  std::list<one_under_way> under_way_, free_;  // in the order in which they were started; memory for others
};

}  // namespace gspmd::detail
