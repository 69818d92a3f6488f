// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "gspmd/detail/transport/meeting_delay.hpp"
#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/detail/transport/mpi/node_memory.hpp"
#include "gspmd/detail/transport/mpi/watch.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Memory that only grows.
class growing_buffer {
 public:
  std::byte* at_least(std::int64_t bytes) {
    if (bytes > bytes_) {
      memory_.reset();
      bytes_ = 0;
      memory_.reset(new_elements<std::byte>(bytes, "messages"));
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::int64_t bytes_ = 0;
};

/// A message in transit, from or to the member `peer`.
struct mpi_request {
  MPI_Request request = MPI_REQUEST_NULL;
  int peer = 0;
  bool is_received = false;
};

/// The workspace of a communicator. Its groups use it one after the other.
struct mpi_workspace {
  std::int64_t largest_count;  // the most elements in one MPI call, summed over the members
  bool shared_memory;
  std::int64_t small_shard_bytes;  // shards of up to this size are copied through a node_window
  bool oversubscribed;             // see is_oversubscribed
  int rank;
  int spins = 1000;        // checks of a rank that waits for messages, before it yields to other processes
  std::vector<int> nodes;  // of the ranks
  mpi_watch watch;
  node_memories memories;
  growing_buffer send_scratch, receive_scratch;
  std::vector<mpi_request> requests;
  bool is_noted = false;

  /// Prints once that collectives are slower than they could be. `failure` is an errno.
  [[gnu::noinline, gnu::cold]] void note_unshared(std::size_t bytes, int failure) {
    if (is_noted) return;
    is_noted = true;
    std::fprintf(stderr, "gspmd: note: the ranks of a node cannot share %zu bytes each (%s): collectives go by messages\n", bytes,
                 std::strerror(failure));
  }
};

/// The kind of a message, in addition to its subject.
enum class message_kind : int { data, done, arrival };

/// The communicator and the members of a group, and the current subject of their messages. The tags have the subject,
/// so no member receives a message for another subject, which may be longer than the receive buffer. mpi_watch
/// detects members that wait in vain for each other.
struct mpi_channel {
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<int> ranks;  // of the members; the number of a member is its rank in `comm`
  meeting_subject subject{};
  int first_tag = 0;

  void begin(const meeting_subject& now, const mpi_workspace& work) {
    if (work.watch.has_failed()) throw error("a collective of this communicator has failed; make another one", work.rank);
    constexpr std::uint32_t tags = 1 << 13;  // times 4, for the kinds: MPI has at least 2^15 tags
    subject = now;
    first_tag = static_cast<int>((now.number >> 1) % tags) * 4;
  }
  [[nodiscard]] int tag_of(message_kind kind) const { return first_tag + static_cast<int>(kind); }
};

/// Messages inside a group: the caller begins some messages, then finishes all. A message that is too long for MPI's
/// counts is sent in pieces.
class mpi_messages {
 public:
  mpi_messages(const mpi_channel& channel, mpi_workspace& work, std::vector<mpi_request>& requests)
      : channel_(channel), work_(work), requests_(requests) {}

  void send(std::int64_t to, const std::byte* data, std::int64_t elems, mpi_elements e = {},
            message_kind kind = message_kind::data) {
    for_each_piece(elems, [&](std::int64_t begin, int count) { send_piece(to, data + begin * e.bytes, count, e, kind); });
  }
  void receive(std::int64_t from, std::byte* data, std::int64_t elems, mpi_elements e = {},
               message_kind kind = message_kind::data) {
    for_each_piece(elems, [&](std::int64_t begin, int count) { receive_piece(from, data + begin * e.bytes, count, e, kind); });
  }
  /// Sends a message of at most largest_count elements.
  void send_piece(std::int64_t to, const void* data, int count, mpi_elements e = {}, message_kind kind = message_kind::data) {
    auto& r = next(to, false);
    check_mpi(MPI_Isend(data, count, e.type, r.peer, channel_.tag_of(kind), channel_.comm, &r.request), "MPI_Isend", work_.rank);
  }
  void receive_piece(std::int64_t from, void* data, int count, mpi_elements e = {}, message_kind kind = message_kind::data) {
    auto& r = next(from, true);
    check_mpi(MPI_Irecv(data, count, e.type, r.peer, channel_.tag_of(kind), channel_.comm, &r.request), "MPI_Irecv", work_.rank);
  }
  /// Send and receive a message without elements.
  void send_sign(std::int64_t to, message_kind kind) { send_piece(to, nullptr, 0, {}, kind); }
  void receive_sign(std::int64_t from, message_kind kind) { receive_piece(from, nullptr, 0, {}, kind); }
  void finish() {
    for (auto& r : requests_) wait_for(r.peer, [&] { return is_over(r); });
    requests_.clear();
  }
  /// Returns true if finish() would not wait. Does not wait.
  [[nodiscard]] bool are_over() {
    for (auto& r : requests_)
      if (!is_over(r)) return false;
    return true;
  }
  /// Abandons all messages. Afterwards MPI writes to no memory for these messages.
  [[gnu::noinline, gnu::cold]] void abandon() {
    work_.watch.fail();
    for (auto& r : requests_) {
      if (r.request == MPI_REQUEST_NULL) continue;
      if (!r.is_received) MPI_Request_free(&r.request);
      else if (MPI_Cancel(&r.request) == MPI_SUCCESS) MPI_Wait(&r.request, MPI_STATUS_IGNORE);
    }
    requests_.clear();
  }
  /// Waits for the next message from a member, and returns true if it has this number of bytes. The caller then
  /// receives the message.
  [[nodiscard]] bool is_next_of(std::int64_t from, std::int64_t bytes) {
    MPI_Status status;
    int is_there = 0, count = 0;
    wait_for(static_cast<int>(from), [&] {
      delay_at_meeting();
      check_mpi(MPI_Iprobe(static_cast<int>(from), channel_.tag_of(message_kind::data), channel_.comm, &is_there, &status),
                "MPI_Iprobe", work_.rank);
      return is_there != 0;
    });
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count", work_.rank);
    return count == bytes;
  }

  /// Receives a message that has arrived and has this number of bytes.
  void receive_now(std::int64_t from, void* data, int bytes) {
    check_mpi(MPI_Recv(data, bytes, MPI_BYTE, static_cast<int>(from), channel_.tag_of(message_kind::data), channel_.comm,
                       MPI_STATUS_IGNORE),
              "MPI_Recv", work_.rank);
  }

  /// Calls `piece(begin, count)` for pieces of at most largest_count elements, up to `elems`.
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
  bool is_over(mpi_request& r) {
    int over = 0;
    check_mpi(MPI_Test(&r.request, &over, MPI_STATUS_IGNORE), "MPI_Test", work_.rank);
    return over != 0;
  }
  template <class IsOver>
  void wait_for(int peer, IsOver is_over) {
    try {
      if (is_over()) return;
      mpi_wait wait{channel_.subject};
      const int rank = channel_.ranks[static_cast<std::size_t>(peer)];
      for (int turns = 0; !is_over(); ++turns) {
        if (turns >= work_.spins) std::this_thread::yield();
        work_.watch.turn(wait, rank);
      }
    } catch (...) {
      abandon();
      throw;
    }
  }
  const mpi_channel& channel_;
  mpi_workspace& work_;
  std::vector<mpi_request>& requests_;
};

/// Waits until all members have arrived for the subject of their channel. It is called before MPI collectives. If
/// only some members called one, MPI would wait forever, or mix up the data of different collectives.
template <class MemberOf>
void roll_call(mpi_messages messages, std::int64_t n, std::int64_t self, MemberOf member) {
  for (std::int64_t distance = 1; distance < n; distance *= 2) {
    messages.receive_sign(member((self + n - distance) % n), message_kind::arrival);
    messages.send_sign(member((self + distance) % n), message_kind::arrival);
    messages.finish();
  }
}

}  // namespace gspmd::detail
