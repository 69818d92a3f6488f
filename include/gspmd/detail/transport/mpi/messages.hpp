// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/inquiries.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"

namespace gspmd::detail {

/// Memory that only grows.
class growing_buffer {
 public:
  template <class T>
  T* at_least(std::int64_t elems) {
    const auto bytes = static_cast<std::size_t>(elems) * sizeof(T);
    if (bytes > bytes_) {
      memory_.reset();
      memory_.reset(new std::byte[bytes]);
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

/// A message that is under way, from or to the member `peer`.
struct mpi_request {
  MPI_Request request = MPI_REQUEST_NULL;
  int peer = 0;
  bool is_received = false;
};

/// What all groups of a communicator use in turn.
struct mpi_workspace {
  std::int64_t largest_count;  // the most elements that one MPI call counts, on all members together
  bool shared_memory;
  std::int64_t small_shard_bytes;  // shards of up to this size are copied through a node_window
  bool oversubscribed;             // see is_oversubscribed
  int rank;
  int largest_tag;
  std::vector<int> all_ranks;
  std::vector<int> nodes;  // of the ranks
  mpi_inquiries inquiries;
  node_memories memories;
  growing_buffer send_scratch, receive_scratch;
  std::vector<mpi_request> requests;
  bool is_noted = false;

  /// Says once what costs the user time. `failure` is an errno.
  [[gnu::noinline, gnu::cold]] void note_unshared(std::size_t bytes, int failure) {
    if (is_noted) return;
    is_noted = true;
    std::fprintf(stderr, "gspmd: note: the ranks of a node cannot share %zu bytes each (%s): collectives go by messages\n", bytes,
                 std::strerror(failure));
  }
};

/// What a message is, beside what it is for.
enum class message_kind : int { data, address, done };

/// Where the messages of a group go, and what they are for now.
struct mpi_channel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> devices;  // ranks of the members
  meeting_subject subject{};
  int first_tag = 0;  // of messages for the subject, see message_kind
  mpi_progress progress{};

  static constexpr int kinds = 4;
  void begin(const meeting_subject& now, int largest_tag) {
    subject = now;
    progress.begin(now.number);
    first_tag = static_cast<int>((now.number >> 1) % static_cast<std::uint32_t>(largest_tag / kinds)) * kinds;
  }
  [[nodiscard]] int tag_of(message_kind kind) const { return first_tag + static_cast<int>(kind); }
  [[nodiscard]] bool has_tag(int tag) const { return first_tag <= tag && tag < first_tag + kinds; }
};

/// Messages inside a group: some are begun, then all are finished. Those that MPI cannot count go in pieces. The tag of a message says
/// what it is for. Nobody takes one that is for something else (Open MPI writes past the end of a buffer that is too small for what it
/// copies from another process); who waits in vain finds it.
class mpi_messages {
 public:
  mpi_messages(mpi_channel& channel, mpi_workspace& work, std::vector<mpi_request>& requests)
      : channel_(channel), work_(work), requests_(requests) {}

  template <class T>
  void send(std::int64_t to, const T* data, std::int64_t elems) {
    for_each_piece(elems, [&](std::int64_t begin, int count) { send_piece(to, data + begin, count); });
  }
  template <class T>
  void receive(std::int64_t from, T* data, std::int64_t elems) {
    for_each_piece(elems, [&](std::int64_t begin, int count) { receive_piece(from, data + begin, count); });
  }
  /// One that MPI can count.
  template <class T>
  void send_piece(std::int64_t to, const T* data, int count, message_kind kind = message_kind::data) {
    auto& r = next(to, false);
    check_mpi(MPI_Isend(data, count, mpi_type<T>(), r.peer, channel_.tag_of(kind), channel_.comm, &r.request), "MPI_Isend",
              work_.rank);
  }
  template <class T>
  void receive_piece(std::int64_t from, T* data, int count, message_kind kind = message_kind::data) {
    auto& r = next(from, true);
    check_mpi(MPI_Irecv(data, count, mpi_type<T>(), r.peer, channel_.tag_of(kind), channel_.comm, &r.request), "MPI_Irecv",
              work_.rank);
  }
  void finish() {
    for (auto& r : requests_) finish(r);
    requests_.clear();
    channel_.progress.end_step();
  }
  /// One that is there.
  template <class T>
  void receive_now(std::int64_t from, T* one, message_kind kind) {
    check_mpi(MPI_Recv(one, 1, mpi_type<T>(), static_cast<int>(from), channel_.tag_of(kind), channel_.comm, MPI_STATUS_IGNORE),
              "MPI_Recv", work_.rank);
  }
  /// Waits for a message from a member, which is not received yet: what it is.
  message_kind next_from(std::int64_t from) {
    mpi_wait wait(work_.inquiries, channel_.subject, channel_.progress.here());
    const auto peer = static_cast<int>(from);
    for (;;) {
      if (const int tag = tag_of_next(peer); tag != no_tag) {
        if (!channel_.has_tag(tag)) differs(peer);
        return static_cast<message_kind>(tag - channel_.first_tag);
      }
      guarded([&] { wait.idle(rank_of(peer)); });
    }
  }

  /// Calls `piece(begin, count)` until `elems` are counted.
  template <class Piece>
  void for_each_piece(std::int64_t elems, Piece piece) const {
    const auto largest = work_.largest_count;
    for (std::int64_t begin = 0; begin < elems; begin += largest)
      piece(begin, static_cast<int>(elems - begin < largest ? elems - begin : largest));
  }

 private:
  mpi_request& next(std::int64_t peer, bool is_received) {
    requests_.push_back({MPI_REQUEST_NULL, static_cast<int>(peer), is_received});
    return requests_.back();
  }
  [[nodiscard]] int rank_of(int peer) const { return channel_.devices[static_cast<std::size_t>(peer)]; }

  static constexpr int no_tag = -1;
  [[nodiscard]] int tag_of_next(int peer) const {
    int is_there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(peer, MPI_ANY_TAG, channel_.comm, &is_there, &status), "MPI_Iprobe", work_.rank);
    return is_there != 0 ? status.MPI_TAG : no_tag;
  }
  void finish(mpi_request& r) {
    if (r.request == MPI_REQUEST_NULL) return;
    mpi_wait wait(work_.inquiries, channel_.subject, channel_.progress.here());
    for (int is_there = 0;;) {
      if (const int code = MPI_Test(&r.request, &is_there, MPI_STATUS_IGNORE); code != MPI_SUCCESS) fails(code, r);
      if (is_there != 0) return;
      guarded([&] { wait.idle(rank_of(r.peer)); });
      // What the peer sends for the collective at hand it has sent before anything else.
      if (!wait.has_lost_patience() || !r.is_received) continue;
      if (const int tag = tag_of_next(r.peer); tag != no_tag && !channel_.has_tag(tag)) differs(r.peer);
    }
  }
  template <class Wait>
  void guarded(Wait wait) {
    try {
      wait();
    } catch (...) {
      abandon();
      throw;
    }
  }
  [[noreturn, gnu::noinline, gnu::cold]] void differs(int peer) {
    abandon();
    work_.inquiries.throw_differs(rank_of(peer), channel_.subject);
  }
  [[noreturn, gnu::noinline, gnu::cold]] void fails(int code, const mpi_request& r) {
    const char* const call = r.is_received ? "MPI_Irecv" : "MPI_Isend";
    abandon();
    check_mpi(code, call, work_.rank);
    throw error("a message was lost", work_.rank);
  }
  /// MPI writes to no buffer of these messages any more, and reads none that its memory is gone of.
  [[gnu::noinline, gnu::cold]] void abandon() {
    work_.inquiries.fail(channel_.subject);
    for (auto& r : requests_)
      if (r.request != MPI_REQUEST_NULL && r.is_received && MPI_Cancel(&r.request) == MPI_SUCCESS)
        MPI_Wait(&r.request, MPI_STATUS_IGNORE);
    for (auto& r : requests_) {
      work_.inquiries.await_taken(rank_of(r.peer), [&] {
        int is_taken = 0;
        return MPI_Test(&r.request, &is_taken, MPI_STATUS_IGNORE) != MPI_SUCCESS || is_taken != 0;
      });
      if (r.request != MPI_REQUEST_NULL) MPI_Request_free(&r.request);
    }
    requests_.clear();
  }

  mpi_channel& channel_;
  mpi_workspace& work_;
  std::vector<mpi_request>& requests_;
};

/// Who returns from it knows that all members of `channel` have come for its subject; one that hears of another throws.
inline void roll_call(mpi_messages messages, std::int64_t n, std::int64_t self) {
  for (std::int64_t distance = 1; distance < n; distance *= 2) {
    messages.receive_piece<std::byte>((self + n - distance) % n, nullptr, 0);
    messages.send_piece<std::byte>((self + distance) % n, nullptr, 0);
    messages.finish();
  }
}

/// The same before a group has a communicator, and for all ranks: over a communicator of more ranks, with a tag of the group's.
inline void roll_call(MPI_Comm comm, const std::vector<int>& ranks, std::int64_t self, int tag, mpi_inquiries& inquiries,
                      const meeting_subject& subject) {
  const auto n = static_cast<std::int64_t>(ranks.size());
  const auto rank_of = [&](std::int64_t member) { return ranks[static_cast<std::size_t>(member)]; };
  for (std::int64_t distance = 1; distance < n; distance *= 2) {
    const int from = rank_of((self + n - distance) % n), to = rank_of((self + distance) % n);
    std::uint32_t theirs = 0;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    check_mpi(MPI_Irecv(&theirs, 1, MPI_UINT32_T, from, tag, comm, &requests[0]), "MPI_Irecv", rank_of(self));
    check_mpi(MPI_Isend(&subject.number, 1, MPI_UINT32_T, to, tag, comm, &requests[1]), "MPI_Isend", rank_of(self));
    mpi_wait wait(inquiries, subject);
    try {
      for (int k = 0; k < 2; ++k)
        for (int is_there = 0;;) {
          check_mpi(MPI_Test(&requests[k], &is_there, MPI_STATUS_IGNORE), "MPI_Test", rank_of(self));
          if (is_there != 0) break;
          wait.idle(k == 0 ? from : to);
        }
    } catch (...) {
      if (requests[0] != MPI_REQUEST_NULL && MPI_Cancel(&requests[0]) == MPI_SUCCESS) MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
      if (requests[1] != MPI_REQUEST_NULL) MPI_Request_free(&requests[1]);
      throw;
    }
    if (theirs != subject.number) inquiries.throw_differs(from, subject);
  }
}

}  // namespace gspmd::detail
