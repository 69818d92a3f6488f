// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {

/// Options of the MPI backend. All ranks must pass the same options.
struct mpi_options {
  /// Use memory that the processes of a node share, for arenas and for the collectives of groups within one node.
  bool shared_memory = true;
  /// The largest number of elements in one MPI call, summed over all members; at least 1.
  std::int64_t largest_count = INT_MAX;
  /// Shards of at most this size (and at most 256 KiB) are copied through memory that the processes of a node share.
  /// Other members read larger shards in place, or receive them in messages.
  std::int64_t small_shard_bytes = 16384;

  friend bool operator==(const mpi_options&, const mpi_options&) = default;
};

}  // namespace gspmd
