// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

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
      bytes_ = 0;
      memory_.reset(new_elements<std::byte>(static_cast<std::int64_t>(bytes), "messages"));
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

/// The workspace that all groups of a communicator use in turn.
struct mpi_workspace {
  std::int64_t largest_count;  // the most elements that one MPI call counts, on all members together
  bool shared_memory;
  std::int64_t small_shard_bytes;  // shards of up to this size are copied through a node_window
  bool oversubscribed;             // see is_oversubscribed
  int rank;
  std::vector<int> nodes;  // of the ranks
  node_memories memories;
  growing_buffer send_scratch, receive_scratch;
  std::vector<MPI_Request> requests;
  bool is_noted = false;

  /// Says once what costs the user time. `failure` is an errno.
  [[gnu::noinline, gnu::cold]] void note_unshared(std::size_t bytes, int failure) {
    if (is_noted) return;
    is_noted = true;
    std::fprintf(stderr, "gspmd: note: the ranks of a node cannot share %zu bytes each (%s): collectives go by messages\n", bytes,
                 std::strerror(failure));
  }
};

/// Messages inside a group: some are begun, then all are finished. Those that MPI cannot count go in pieces.
class mpi_messages {
 public:
  mpi_messages(MPI_Comm comm, mpi_workspace& work, std::vector<MPI_Request>& requests)
      : comm_(comm), work_(work), requests_(requests) {}

  template <class T>
  void send(std::int64_t to, const T* data, std::int64_t elems) {
    for_each_piece(elems, [&](std::int64_t begin, int count) { send_piece(to, data + begin, count, 0); });
  }
  /// One that MPI can count, of another kind than the others.
  template <class T>
  void send_piece(std::int64_t to, const T* data, int count, int tag) {
    check_mpi(MPI_Isend(data, count, mpi_type<T>(), static_cast<int>(to), tag, comm_, next()), "MPI_Isend", work_.rank);
  }
  template <class T>
  void receive(std::int64_t from, T* data, std::int64_t elems) {
    for_each_piece(elems, [&](std::int64_t begin, int count) {
      check_mpi(MPI_Irecv(data + begin, count, mpi_type<T>(), static_cast<int>(from), 0, comm_, next()), "MPI_Irecv", work_.rank);
    });
  }
  void finish() {
    check_mpi(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall", work_.rank);
    requests_.clear();
  }
  /// Calls `piece(begin, count)` until `elems` are counted.
  template <class Piece>
  void for_each_piece(std::int64_t elems, Piece piece) const {
    const auto largest = work_.largest_count;
    for (std::int64_t begin = 0; begin < elems; begin += largest)
      piece(begin, static_cast<int>(elems - begin < largest ? elems - begin : largest));
  }

 private:
  MPI_Request* next() {
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }

  MPI_Comm comm_;
  mpi_workspace& work_;
  std::vector<MPI_Request>& requests_;
};

}  // namespace gspmd::detail
