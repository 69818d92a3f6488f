// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/mpi_call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "gspmd/detail/exec/box.hpp"
#include "gspmd/detail/exec/combine.hpp"
#include "gspmd/detail/exec/meeting.hpp"
#include "gspmd/detail/exec/shared_memory.hpp"
#include "gspmd/detail/ir/types.hpp"

namespace gspmd::detail {

/// Memory that the processes of a group on one node share: where they meet, and reductions through it.
///
/// A buffer goes through in pieces. For each, a member
///  1. copies what its peers will need into its own segment, and meets them;
///  2. reduces its part of the piece, reading its own input and the peers' segments, into its output;
///  3. all_reduce only: leaves that part in its segment too, meets them again and copies their parts.
/// Pieces alternate between two halves of the segment: who writes to a half again has met the others after they read it.
class node_window {
 public:
  /// Collective over `group`. Null, on all members alike, where they do not share memory.
  static std::unique_ptr<node_window> make(MPI_Comm group, int rank) {
    int n = 0, self = 0, on_node = 0;
    MPI_Comm_size(group, &n);
    MPI_Comm_rank(group, &self);
    MPI_Comm node = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(group, MPI_COMM_TYPE_SHARED, self, MPI_INFO_NULL, &node), "MPI_Comm_split_type", rank);
    MPI_Comm_size(node, &on_node);
    if (on_node != n) on_node = 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &on_node, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce", rank);
    if (on_node == 0) {
      MPI_Comm_free(&node);
      return nullptr;
    }
    MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
    auto made = std::unique_ptr<node_window>(new node_window(node, n, self));
    int works = made->allocate() ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, group), "MPI_Allreduce", rank);
    return works != 0 ? std::move(made) : nullptr;
  }
  node_window(const node_window&) = delete;
  node_window& operator=(const node_window&) = delete;
  /// Collective, before MPI_Finalize.
  ~node_window() {
    if (window_ != MPI_WIN_NULL) {
      MPI_Win_unlock_all(window_);
      MPI_Win_free(&window_);
    }
    MPI_Comm_free(&node_);
  }

  /// Small enough for an all_reduce by a single meeting, where each member reduces all of it.
  [[nodiscard]] bool is_small(std::int64_t bytes) const { return bytes * n_ <= 4096; }

  /// Meets the members; each may then read the others' notes.
  template <class Note>
  unsigned meet_with(const Note& note) {
    static_assert(sizeof(Note) <= 32);
    std::memcpy(slot(self_).next_lane().mail, &note, sizeof note);
    return meet();
  }
  /// The same without waiting, for a member that does not read the notes and will not come to the next meeting before it has
  /// heard from every other one that it passed this.
  template <class Note>
  void leave_note(const Note& note) {
    static_assert(sizeof(Note) <= 32);
    auto& mine = slot(self_);
    auto& lane = mine.next_lane();
    std::memcpy(lane.mail, &note, sizeof note);
    lane.meeting.store(++mine.meetings, std::memory_order_release);
  }
  template <class Note>
  [[nodiscard]] Note note_of(std::int64_t j, unsigned parity) const {
    Note note;
    std::memcpy(&note, slot(j).lanes[parity].mail, sizeof note);
    return note;
  }
  unsigned meet() {
    return arrive_and_wait(
        n_, self_, [this](std::int64_t j) -> meeting_slot& { return slot(j); },
        [this](std::int64_t, auto is_here) {
          std::this_thread::yield();
          if (is_here()) return;  // MPI yields too, when there are more processes than cores
          // a peer may be waiting in MPI for something that this process has to move on
          int flag = 0;
          MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, node_, &flag, MPI_STATUS_IGNORE);
        });
  }

  /// Shows `in`, at most small_shard_bytes, to the members; returns where to find theirs until the next but one collective.
  template <class T>
  auto share(const T* in, std::int64_t elems) {
    return show<T>([&](T* memory) { copy_row(memory, in, elems); });
  }
  /// The same with what `fill(memory)` writes, at most half_bytes.
  template <class T, class Fill>
  auto show(Fill fill) {
    const int half = next_half();
    fill(input_of<T>(self_, half));
    meet();
    return [this, half](std::int64_t j) { return static_cast<const T*>(input_of<T>(j, half)); };
  }

  /// `out` may be `in`.
  template <class T>
  void all_reduce(monoid kind, std::int64_t elems, const T* in, T* out) {
    with_monoid<T>(kind, [&](auto op, auto element) {
      using E = decltype(element);
      all_reduce_as<decltype(op), E>(elems, reinterpret_cast<const E*>(in), reinterpret_cast<E*>(out));
    });
  }

  /// The result of member j is the reduction of the elements [offsets[j], offsets[j + 1]) of all `in`.
  template <class T>
  void reduce_scatter(monoid kind, const std::int64_t* offsets, const T* in, T* out) {
    with_monoid<T>(kind, [&](auto op, auto element) {
      using E = decltype(element);
      reduce_scatter_as<decltype(op), E>(offsets, reinterpret_cast<const E*>(in), reinterpret_cast<E*>(out));
    });
  }

  static constexpr std::int64_t half_bytes = std::int64_t{256} << 10;  // two halves and the sources fit a second-level cache

 private:
  static constexpr std::int64_t page_bytes = 4096;

  node_window(MPI_Comm node, int n, int self) : node_(node), n_(n), self_(self) {}

  bool allocate() {
    void* mine = nullptr;
    const MPI_Aint bytes = page_bytes + 4 * half_bytes + static_cast<MPI_Aint>(cache_line_bytes);
    if (MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node_, &mine, &window_) != MPI_SUCCESS) {
      window_ = MPI_WIN_NULL;
      return false;
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    for (int j = 0; j < n_; ++j) {
      MPI_Aint size = 0;
      int unit = 0;
      void* base = nullptr;
      if (MPI_Win_shared_query(window_, j, &size, &unit, &base) != MPI_SUCCESS) return false;
      // Open MPI aligns to 8 bytes; memory is mapped by pages, so all processes find the same line
      const auto past = reinterpret_cast<std::uintptr_t>(base) % cache_line_bytes;
      bases_.push_back(static_cast<std::byte*>(base) + (past == 0 ? 0 : cache_line_bytes - past));
      if (j == self_) new (bases_.back()) meeting_slot;
    }
    MPI_Win_sync(window_);
    return MPI_Barrier(node_) == MPI_SUCCESS;
  }

  meeting_slot& slot(std::int64_t j) const { return *std::launder(reinterpret_cast<meeting_slot*>(base(j))); }
  std::byte* base(std::int64_t j) const { return bases_[static_cast<std::size_t>(j)]; }
  template <class E>
  E* input_of(std::int64_t j, int half) const {
    return reinterpret_cast<E*>(base(j) + page_bytes + half * half_bytes);
  }
  template <class E>
  E* result_of(std::int64_t j, int half) const {
    return reinterpret_cast<E*>(base(j) + page_bytes + (2 + half) * half_bytes);
  }

  template <class Monoid, class E>
  void all_reduce_as(std::int64_t elems, const E* in, E* out) {
    constexpr auto width = static_cast<std::int64_t>(sizeof(E));
    if (elems * width <= static_cast<std::int64_t>(mail_bytes)) {
      std::memcpy(slot(self_).next_lane().mail, in, static_cast<std::size_t>(elems * width));
      const auto parity = meet();
      reduce_row<Monoid, E>(
          out, n_, [&](std::int64_t j) { return reinterpret_cast<const E*>(slot(j).lanes[parity].mail); }, elems, false);
      return;
    }
    if (is_small(elems * width)) {
      const auto input = share(in, elems);
      return reduce_row<Monoid, E>(out, n_, input, elems, false);
    }
    for (std::int64_t begin = 0; begin < elems; begin += half_bytes / width) {
      const auto count = elems - begin < half_bytes / width ? elems - begin : half_bytes / width;
      const int half = next_half();
      const auto mine = chunk_of(count, width, n_, self_);
      E* const shared = input_of<E>(self_, half);
      copy_row(shared, in + begin, mine.begin);
      copy_row(shared + mine.end, in + begin + mine.end, count - mine.end);
      meet();
      if (mine.begin < mine.end) {
        E* const result = result_of<E>(self_, half);
        reduce_row<Monoid, E>(
            result, n_, [&](std::int64_t j) { return (j == self_ ? in + begin : input_of<const E>(j, half)) + mine.begin; },
            mine.end - mine.begin, false);
        copy_row(out + begin + mine.begin, result, mine.end - mine.begin);
      }
      meet();
      for (std::int64_t k = 1; k < n_; ++k) {
        const auto j = (self_ + k) % n_;
        const auto theirs = chunk_of(count, width, n_, j);
        copy_row(out + begin + theirs.begin, result_of<const E>(j, half), theirs.end - theirs.begin);
      }
    }
  }

  template <class Monoid, class E>
  void reduce_scatter_as(const std::int64_t* offsets, const E* in, E* out) {
    const auto step = half_bytes / static_cast<std::int64_t>(sizeof(E)) / n_;
    std::int64_t longest = 0;
    for (std::int64_t j = 0; j < n_; ++j) longest = longest > offsets[j + 1] - offsets[j] ? longest : offsets[j + 1] - offsets[j];
    const auto part_of = [&](std::int64_t j, std::int64_t begin) {  // of the block of member j, in this piece
      const auto block = offsets[j + 1] - offsets[j];
      const auto rest = block > begin ? block - begin : 0;
      return rest < step ? rest : step;
    };
    for (std::int64_t begin = 0; begin < longest; begin += step) {
      const int half = next_half();
      for (std::int64_t j = 0; j < n_; ++j)
        if (j != self_) copy_row(input_of<E>(self_, half) + j * step, in + offsets[j] + begin, part_of(j, begin));
      meet();
      const auto count = part_of(self_, begin);
      if (count == 0) continue;
      reduce_row<Monoid, E>(
          out + begin, n_,
          [&](std::int64_t j) { return j == self_ ? in + offsets[self_] + begin : input_of<const E>(j, half) + self_ * step; },
          count, false);
    }
  }

  int next_half() {
    half_ = 1 - half_;
    return half_;
  }

  MPI_Comm node_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> bases_;
  std::int64_t n_;
  std::int64_t self_;
  int half_ = 0;
};

}  // namespace gspmd::detail
