// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/detail/transport/combine.hpp"
#include "gspmd/detail/transport/meeting.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/messages.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/watch.hpp"
#include "gspmd/detail/transport/shared_memory.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Memory that the processes of a group on one node share. They synchronise in it, and carry out reductions through
/// it.
///
/// A buffer is processed in pieces. For each piece, a member
///  1. copies the elements that its peers need into its own segment, and synchronises with them;
///  2. reduces its part of the piece into its output, reading its own input and the segments of the peers;
///  3. all_reduce only: stores this part in its segment too, synchronises again and copies the parts of the peers.
///
/// Pieces alternate between two halves of the segment. A member that writes a half again has synchronised with its
/// peers after they read this half.
class node_window {
 public:
  /// Collective over `group`, whose members share a node; this process is member `self`. The members synchronise for
  /// the subject of `group`. If the system refuses to share memory, failure() has the errno, the same on all members,
  /// and no other function may be called.
  node_window(const mpi_channel& group, std::int64_t self, mpi_watch& watch, bool is_oversubscribed)
      : group_(group),
        watch_(watch),
        is_oversubscribed_(is_oversubscribed),
        memory_(group.comm, static_cast<int>(self), std::vector<int>(group.ranks.size(), 0), segment_bytes),
        n_(static_cast<std::int64_t>(group.ranks.size())),
        self_(self) {
    if (failure() != 0) return;
    new (base(self_)) meeting_place;
    check_mpi(MPI_Barrier(group_.comm), "MPI_Barrier", rank(self_));
  }
  node_window(const node_window&) = delete;
  node_window& operator=(const node_window&) = delete;
  [[nodiscard]] int failure() const { return memory_.failure(); }
  [[nodiscard]] static constexpr std::size_t bytes() { return segment_bytes; }

  /// Returns true if an all_reduce uses a single meeting, after which each member reduces the whole buffer.
  [[nodiscard]] bool is_small(std::int64_t bytes) const { return bytes * n_ <= 4096; }

  template <class Note>
  [[nodiscard]] Note note_of(std::int64_t j, unsigned parity) const {
    Note note;
    std::memcpy(&note, slot(j).lanes[parity].mail, sizeof note);
    return note;
  }
  /// Begins to synchronise the members. After wait(), each member may read the notes of its peers.
  template <class Note>
  void arrive_with(const Note& note) {
    std::memcpy(slot(self_).next_lane().mail, &note, sizeof note);
    arrive_alone(slot(self_), group_.subject.number);
  }
  unsigned meet() {
    arrive_alone(slot(self_), group_.subject.number);
    return wait();
  }
  unsigned wait() {
    mpi_wait wait{group_.subject};
    return wait_for_all(
        n_, self_, group_.subject.number, pauses_without_core, [this](std::int64_t j) -> meeting_slot& { return slot(j); },
        [&](std::int64_t j, auto is_here) { idle(wait, j, is_here); }, [this](std::int64_t j, unsigned) { throw_differs(j); });
  }

  /// Publishes the data that `fill(memory)` writes, at most half_bytes, to the members. Returns the function from a
  /// member to its memory, which is valid until the second collective after this one.
  template <class Fill>
  auto show(Fill fill) {
    const int half = next_half();
    fill(input_of(self_, half));
    meet();
    return [this, half](std::int64_t j) { return static_cast<const std::byte*>(input_of(j, half)); };
  }
  /// Publishes `in` in the same way.
  auto share(const std::byte* in, std::int64_t bytes) {
    return show([&](std::byte* memory) { std::copy_n(in, bytes, memory); });
  }

  /// Carries out an all_reduce. `to` may be `from`.
  void all_reduce(const row_combiner& op, std::int64_t elems, const void* from, void* to) {
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    const auto width = op.elem_bytes, bytes = elems * width;
    if (bytes <= static_cast<std::int64_t>(mail_bytes)) {
      std::memcpy(slot(self_).next_lane().mail, in, static_cast<std::size_t>(bytes));
      const auto parity = meet();
      return reduce_row(
          op, out, n_, [&](std::int64_t j) { return slot(j).lanes[parity].mail; }, 0, elems, false);
    }
    if (is_small(bytes)) {
      const auto input = share(in, bytes);
      return reduce_row(op, out, n_, input, 0, elems, false);
    }
    for (std::int64_t begin = 0; begin < bytes; begin += half_bytes) {
      const auto count = std::min(bytes - begin, half_bytes);
      const int half = next_half();
      const auto part_of = [&](std::int64_t j) {  // in bytes
        const auto part = chunk_of(count / width, width, n_, j);
        return chunk{part.begin * width, part.end * width};
      };
      const auto mine = part_of(self_);
      auto* const shared = input_of(self_, half);
      std::copy_n(in + begin, mine.begin, shared);
      std::copy_n(in + begin + mine.end, count - mine.end, shared + mine.end);
      meet();
      if (mine.begin < mine.end) {
        auto* const result = result_of(self_, half);
        reduce_row(
            op, result, n_,
            [&](std::int64_t j) { return j == self_ ? in + begin : static_cast<const std::byte*>(input_of(j, half)); },
            mine.begin, (mine.end - mine.begin) / width, false);
        std::copy_n(result, mine.end - mine.begin, out + begin + mine.begin);
      }
      meet();
      for (std::int64_t k = 1; k < n_; ++k) {
        const auto j = (self_ + k) % n_;
        const auto theirs = part_of(j);
        std::copy_n(result_of(j, half), theirs.end - theirs.begin, out + begin + theirs.begin);
      }
    }
  }

  /// Reduces the elements [offsets[j], offsets[j + 1]) of all `from` into the result of member j.
  void reduce_scatter(const row_combiner& op, const std::int64_t* offsets, const void* from, void* to) {
    const auto* const in = static_cast<const std::byte*>(from);
    auto* const out = static_cast<std::byte*>(to);
    const auto width = op.elem_bytes;
    const auto step = half_bytes / width / n_;
    std::int64_t longest = 0;
    for (std::int64_t j = 0; j < n_; ++j) longest = std::max(longest, offsets[j + 1] - offsets[j]);
    const auto part_of = [&](std::int64_t j, std::int64_t begin) {  // of the block of member j, in this piece
      return std::clamp(offsets[j + 1] - offsets[j] - begin, std::int64_t{0}, step);
    };
    for (std::int64_t begin = 0; begin < longest; begin += step) {
      const int half = next_half();
      for (std::int64_t j = 0; j < n_; ++j)
        if (j != self_)
          std::copy_n(in + (offsets[j] + begin) * width, part_of(j, begin) * width, input_of(self_, half) + j * step * width);
      meet();
      const auto count = part_of(self_, begin);
      if (count == 0) continue;
      reduce_row(
          op, out + begin * width, n_,
          [&](std::int64_t j) {
            return j == self_ ? in + (offsets[self_] + begin) * width : input_of(j, half) + self_ * step * width;
          },
          0, count, false);
    }
  }

  static constexpr std::int64_t half_bytes = std::int64_t{256} << 10;  // two halves and the sources fit into a second-level cache

 private:
  static constexpr int pauses_of_turn = 100;  // about 5 us, after which a member checks whether other ranks wait for it in MPI
  static constexpr std::uint32_t turns_of_yield = pauses_with_core / pauses_of_turn;
  static constexpr std::int64_t page_bytes = 4096;
  static constexpr auto segment_bytes = static_cast<std::size_t>(page_bytes + 4 * half_bytes);

  /// The head of a segment.
  struct meeting_place {
    meeting_slot slot;
    std::atomic<std::uint64_t> announced{0};  // number of the meeting that `subject` belongs to
    char subject[1024] = {};
  };
  static_assert(sizeof(meeting_place) <= page_bytes);

  [[nodiscard]] int rank(std::int64_t member) const { return group_.ranks[static_cast<std::size_t>(member)]; }

  template <class IsHere>
  void idle(mpi_wait& wait, std::int64_t j, IsHere is_here) {
    if (is_oversubscribed_ || wait.turns % turns_of_yield == turns_of_yield - 1) {
      std::this_thread::yield();
    } else {
      for (int i = 0; i < pauses_of_turn && !is_here(); ++i) pause_briefly();
    }
    if (is_here()) return;  // without MPI_Iprobe, which also yields if there are more processes than cores
    watch_.turn(wait, rank(j));
    // a peer may wait in MPI for a message that progresses only if this process calls MPI
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_.comm, &flag, MPI_STATUS_IGNORE);
  }

  /// Throws the error with both subjects. Member j arrived at the same meeting for another collective and throws too,
  /// so each of the two members announces its subject to the other.
  [[noreturn, gnu::noinline, gnu::cold]] void throw_differs(std::int64_t j) {
    auto& mine = place(self_);
    const auto meeting = mine.slot.meetings;
    const auto text = group_.subject.text();
    mine.subject[text.copy(mine.subject, sizeof mine.subject - 1)] = '\0';
    mine.announced.store(meeting, std::memory_order_release);
    const auto is_announced = [&] { return place(j).announced.load(std::memory_order_acquire) == meeting; };
    mpi_wait wait{group_.subject};
    while (!is_announced()) idle(wait, j, is_announced);
    throw error(different_collectives(rank(self_), text, rank(j), place(j).subject), rank(self_));
  }

  meeting_place& place(std::int64_t j) const { return *std::launder(reinterpret_cast<meeting_place*>(base(j))); }
  meeting_slot& slot(std::int64_t j) const { return place(j).slot; }
  std::byte* base(std::int64_t j) const { return memory_.of(static_cast<int>(j)); }
  std::byte* input_of(std::int64_t j, int half) const { return base(j) + page_bytes + half * half_bytes; }
  std::byte* result_of(std::int64_t j, int half) const { return base(j) + page_bytes + (2 + half) * half_bytes; }

  int next_half() {
    half_ = 1 - half_;
    return half_;
  }

  const mpi_channel& group_;
  mpi_watch& watch_;
  bool is_oversubscribed_;
  node_memory memory_;
  std::int64_t n_;
  std::int64_t self_;
  int half_ = 0;
};

}  // namespace gspmd::detail
