// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/exec/mpi_call.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gspmd/detail/exec/lanes.hpp"

namespace gspmd::detail {

/// Collective over `comm`: whether this node has more of its processes than cores. Alike on all of a node.
inline bool is_oversubscribed(MPI_Comm comm, int rank) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type", rank);
  int here = 0, cores = static_cast<int>(std::thread::hardware_concurrency());
  MPI_Comm_size(node, &here);
  const int code = MPI_Allreduce(MPI_IN_PLACE, &cores, 1, MPI_INT, MPI_MAX, node);
  MPI_Comm_free(&node);
  check_mpi(code, "MPI_Allreduce", rank);
  return cores < here;
}

/// Memory of each process of a communicator that the others on its node can read and write too. Where sharing is not
/// possible it is memory like any other.
class node_memory {
 public:
  /// Collective over `comm`. All members give the same size.
  node_memory(MPI_Comm comm, int rank, std::size_t bytes) : bytes_(bytes) {
    int count = 0;
    MPI_Comm_size(comm, &count);
    bases_.assign(static_cast<std::size_t>(count), nullptr);
    check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node_), "MPI_Comm_split_type", rank);
    MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN);
    int works = map(comm, rank) ? 1 : 0;
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &works, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce", rank);
    if (works != 0) {
      mine_ = bases_[static_cast<std::size_t>(rank)];
      return;
    }
    bases_.assign(static_cast<std::size_t>(count), nullptr);
    own_.reset(new std::byte[bytes + cache_line_bytes]);
    mine_ = aligned(own_.get());
  }
  node_memory(const node_memory&) = delete;
  node_memory& operator=(const node_memory&) = delete;
  /// Collective, before MPI_Finalize.
  ~node_memory() {
    if (window_ != MPI_WIN_NULL) {
      MPI_Win_unlock_all(window_);
      MPI_Win_free(&window_);
    }
    if (node_ != MPI_COMM_NULL) MPI_Comm_free(&node_);
  }

  [[nodiscard]] std::byte* mine() const { return mine_; }
  [[nodiscard]] bool holds(const void* p) const {
    const auto at = static_cast<const std::byte*>(p);
    return mine_ <= at && at < mine_ + bytes_;
  }
  /// Where this process finds the memory of `rank`; null on another node.
  [[nodiscard]] std::byte* of(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }

 private:
  static std::byte* aligned(void* p) {
    const auto past = reinterpret_cast<std::uintptr_t>(p) % cache_line_bytes;
    return static_cast<std::byte*>(p) + (past == 0 ? 0 : cache_line_bytes - past);
  }

  bool map(MPI_Comm comm, int rank) {
    const auto bytes = static_cast<MPI_Aint>(bytes_ + cache_line_bytes);
    void* base = nullptr;
    if (MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node_, &base, &window_) != MPI_SUCCESS) {
      window_ = MPI_WIN_NULL;
      return false;
    }
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
    MPI_Comm_group(comm, &all);
    MPI_Comm_group(node_, &here);
    int on_node = 0;
    MPI_Comm_size(node_, &on_node);
    bool found = true;
    for (int j = 0; j < on_node; ++j) {
      MPI_Aint size = 0;
      int unit = 0, peer = 0;
      found = found && MPI_Win_shared_query(window_, j, &size, &unit, &base) == MPI_SUCCESS &&
              MPI_Group_translate_ranks(here, 1, &j, all, &peer) == MPI_SUCCESS;
      if (found) bases_[static_cast<std::size_t>(peer)] = aligned(base);
    }
    MPI_Group_free(&here);
    MPI_Group_free(&all);
    return found && bases_[static_cast<std::size_t>(rank)] != nullptr;
  }

  MPI_Comm node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  std::vector<std::byte*> bases_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* mine_ = nullptr;
  std::size_t bytes_;
};

/// A place in one of several node_memory, as a number that means the same in all processes; 0: in none of them.
using node_address = std::uint64_t;
inline constexpr int node_offset_bits = 48;

inline node_address address_of(const std::vector<std::unique_ptr<node_memory>>& memories, const void* p) {
  for (std::size_t i = 0; i < memories.size(); ++i)
    if (memories[i]->holds(p))
      return (static_cast<node_address>(i) + 1) << node_offset_bits |
             static_cast<node_address>(static_cast<const std::byte*>(p) - memories[i]->mine());
  return 0;
}

/// Where this process finds what `rank` calls `address`; null where it cannot.
inline std::byte* find(const std::vector<std::unique_ptr<node_memory>>& memories, int rank, node_address address) {
  if (address == 0) return nullptr;
  std::byte* const base = memories[static_cast<std::size_t>(address >> node_offset_bits) - 1]->of(rank);
  return base == nullptr ? nullptr : base + (address & ((node_address{1} << node_offset_bits) - 1));
}

}  // namespace gspmd::detail
