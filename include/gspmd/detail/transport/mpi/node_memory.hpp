// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/detail/transport/shared_pages.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Zeroed memory of each process of a communicator, which the other processes of its node can read and write too. If
/// some process cannot share, all processes have private memory. Freeing it is not collective.
class node_memory {
 public:
  /// Collective over `comm`. This process is `self`, and process j is on the node nodes[j]. All processes must pass
  /// the same size.
  node_memory(MPI_Comm comm, int self, const std::vector<int>& nodes, std::size_t bytes,
              std::initializer_list<page_source> sources = {page_source::opened, page_source::sent})
      : bytes_(bytes) {
    for (const auto source : sources) {
      failure_ = share(comm, self, nodes, source);
      if (failure_ == 0) {
        mine_ = pages_[static_cast<std::size_t>(self)].get();
        return;
      }
      if (failure_ == ENOMEM || failure_ == ENOSPC || failure_ == EFBIG) break;  // another source needs as much memory
    }
    pages_.clear();
    pages_.resize(nodes.size());
    own_ = aligned_bytes(static_cast<std::int64_t>(bytes), "a device");
    mine_ = own_.get();
  }
  node_memory(const node_memory&) = delete;
  node_memory& operator=(const node_memory&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* mine() const { return mine_; }
  [[nodiscard]] bool holds(const void* p) const {
    const auto at = static_cast<const std::byte*>(p);
    return mine_ <= at && at < mine_ + bytes_;
  }
  /// Returns the address, in this process, of the memory of process `j`, or null if `j` is on another node.
  [[nodiscard]] std::byte* of(int j) const { return pages_[static_cast<std::size_t>(j)].get(); }
  /// Returns the errno of a process that could not share, the same on all processes, or 0 if they share.
  [[nodiscard]] int failure() const { return failure_; }

 private:
  /// Returns 0 or an errno, the same on all processes.
  int share(MPI_Comm comm, int self, const std::vector<int>& nodes, page_source source) {
    pages_.clear();
    pages_.resize(nodes.size());
    offered_pages mine(source, bytes_);
    std::vector<page_offer> offers(nodes.size());
    check_mpi(MPI_Allgather(&mine.offer(), sizeof(page_offer), MPI_BYTE, offers.data(), sizeof(page_offer), MPI_BYTE, comm),
              "MPI_Allgather", -1);
    for (const auto& offer : offers)
      if (offer.failure != 0) return static_cast<int>(offer.failure);
    auto failure = source == page_source::opened ? open_all(self, nodes, offers) : exchange(comm, self, nodes, offers, mine);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &failure, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce", -1);
    pages_[static_cast<std::size_t>(self)] = mine.take();
    return failure;
  }
  int open_all(int self, const std::vector<int>& nodes, const std::vector<page_offer>& offers) {
    const auto me = static_cast<std::size_t>(self);
    for (std::size_t j = 0; j < nodes.size(); ++j) {
      if (j == me || nodes[j] != nodes[me]) continue;
      pages_[j] = open_pages(offers[j], bytes_);
      if (!pages_[j]) return errno;
    }
    return 0;
  }
  /// In round k each process sends its descriptor to the k-th process after it on its node. A system may hold no more
  /// than ten messages for a process that does not receive, so all processes synchronise after each round. Two
  /// processes on each node need one round.
  int exchange(MPI_Comm comm, int self, const std::vector<int>& nodes, const std::vector<page_offer>& offers,
               const offered_pages& mine) {
    std::vector<std::size_t> counts(nodes.size());  // processes of each node
    for (const int node : nodes) ++counts[static_cast<std::size_t>(node)];
    const auto most = *std::max_element(counts.begin(), counts.end());
    std::vector<std::size_t> here;  // the processes on this node, this one first
    for (std::size_t k = 0; k < nodes.size(); ++k) {
      const auto j = (static_cast<std::size_t>(self) + k) % nodes.size();
      if (nodes[j] == nodes[static_cast<std::size_t>(self)]) here.push_back(j);
    }
    int failure = 0;
    for (std::size_t k = 1; k < most; ++k) {
      if (k < here.size() && failure == 0) failure = mine.send_to(offers[here[k]]);
      check_mpi(MPI_Barrier(comm), "MPI_Barrier", -1);
      if (k >= here.size() || failure != 0) continue;
      const auto from = here[here.size() - k];
      pages_[from] = mine.receive_from(offers[from], bytes_);
      if (!pages_[from]) failure = errno;
    }
    return failure;
  }

  std::size_t bytes_;
  std::vector<mapped_pages> pages_;  // of the processes on this node
  aligned_bytes own_;
  std::byte* mine_ = nullptr;
  int failure_ = 0;
};

/// The memories of a communicator. All its processes use the same number for a memory.
using node_memories = std::vector<std::shared_ptr<node_memory>>;

/// Returns the number of an unused memory with these `bytes`, or else the number of a free slot. A memory is unused
/// if all processes have released it. If no unused memory has these `bytes`, all unused memories are freed.
/// Collective over `comm`. Throws gspmd::error on all processes unless they pass the same size.
inline std::size_t free_memory(node_memories& memories, MPI_Comm comm, std::size_t bytes) {
  const auto asked = static_cast<std::int64_t>(bytes);
  std::vector<std::int64_t> least{asked, -asked};
  for (const auto& memory : memories) least.push_back(memory.use_count() > 1 ? 0 : 1);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, least.data(), static_cast<int>(least.size()), MPI_INT64_T, MPI_MIN, comm),
            "MPI_Allreduce", -1);
  if (least[0] != -least[1])
    throw error("one rank requests " + std::to_string(least[0]) + " bytes of shared memory and another rank " +
                std::to_string(-least[1]) + "; all ranks must run the same step");
  const auto is_free = [&](std::size_t i) { return least[i + 2] != 0; };
  for (std::size_t i = 0; i < memories.size(); ++i)
    if (is_free(i) && memories[i] && memories[i]->bytes() == bytes) return i;
  auto place = memories.size();
  for (auto i = memories.size(); i-- > 0;)
    if (is_free(i)) {
      memories[i].reset();
      place = i;
    }
  if (place == memories.size()) memories.emplace_back();
  return place;
}

/// An address in one of several node_memory, as a number with the same meaning in all processes; 0 for other memory.
using node_address = std::uint64_t;
inline constexpr int node_offset_bits = 48;

inline node_address address_of(const node_memories& memories, const void* p) {
  for (std::size_t i = 0; i < memories.size(); ++i)
    if (memories[i] && memories[i]->holds(p))
      return (static_cast<node_address>(i) + 1) << node_offset_bits |
             static_cast<node_address>(static_cast<const std::byte*>(p) - memories[i]->mine());
  return 0;
}

/// Returns the address, in this process, of the `address` of `rank`, or null if this process cannot access it.
inline std::byte* find(const node_memories& memories, int rank, node_address address) {
  if (address == 0) return nullptr;
  std::byte* const base = memories[static_cast<std::size_t>(address >> node_offset_bits) - 1]->of(rank);
  return base == nullptr ? nullptr : base + (address & ((node_address{1} << node_offset_bits) - 1));
}

}  // namespace gspmd::detail
