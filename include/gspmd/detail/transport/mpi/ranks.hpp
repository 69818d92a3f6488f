// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "gspmd/error.hpp"

/// The first exchange of a communicator's processes: each process sends a card with its facts to all processes. A
/// process checks the cards after all processes have all cards, so all processes reach the same result.
namespace gspmd::detail {

struct rank_card {
  std::int64_t shared_memory, largest_count, small_shard_bytes;  // mpi_options
  std::int64_t ranks_per_node = 0;                               // asked_ranks_per_node()
  std::int64_t node = 0;                                         // the lowest rank that shares memory with this rank
  std::int64_t cores = 0;
};

/// Returns GSPMD_RANKS_PER_NODE, 0 if it is not set, or -1 if it is not a number of ranks. It is for tests:
/// GSPMD_RANKS_PER_NODE=2 treats each two consecutive ranks of a machine as a node.
inline std::int64_t asked_ranks_per_node() {
  const char* const text = std::getenv("GSPMD_RANKS_PER_NODE");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  return *end == '\0' && n > 0 ? n : -1;
}

/// Returns the cards of all ranks. Collective over `comm`. `mine` has the options of this rank.
inline std::vector<rank_card> exchange_cards(MPI_Comm comm, int rank, rank_card mine) {
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node), "MPI_Comm_split_type", rank);
  int lowest = rank, count = 0;
  const int code = MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  check_mpi(code, "MPI_Bcast", rank);
  MPI_Comm_size(comm, &count);
  std::vector<rank_card> cards(static_cast<std::size_t>(count));
  mine.ranks_per_node = asked_ranks_per_node();
  mine.node = lowest;
  mine.cores = std::thread::hardware_concurrency();
  cards[static_cast<std::size_t>(rank)] = mine;
  check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, cards.data(), sizeof(rank_card), MPI_BYTE, comm), "MPI_Allgather",
            rank);
  return cards;
}

/// Throws an error, the same on all ranks, if the options of some rank are wrong.
inline void check_cards(const std::vector<rank_card>& cards) {
  const auto rank_text = [](std::size_t r) { return " on rank " + std::to_string(r); };
  const auto check_alike = [&](const char* name, std::int64_t rank_card::*option, std::size_t r) {
    if (cards[r].*option != cards[0].*option)
      throw error(std::string(name) + " is " + std::to_string(cards[0].*option) + rank_text(0) + " and " +
                  std::to_string(cards[r].*option) + rank_text(r) + "; give all ranks the same");
  };
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (cards[r].largest_count < 1 || cards[r].largest_count > INT_MAX)
      throw error("mpi_options::largest_count is " + std::to_string(cards[r].largest_count) + rank_text(r) + "; give 1 to " +
                  std::to_string(INT_MAX));
    if (cards[r].ranks_per_node < 0)
      throw error("GSPMD_RANKS_PER_NODE" + rank_text(r) + " is no number of ranks; give 1 or more");
  }
  for (std::size_t r = 1; r < cards.size(); ++r) {
    check_alike("mpi_options::shared_memory", &rank_card::shared_memory, r);
    check_alike("mpi_options::largest_count", &rank_card::largest_count, r);
    check_alike("mpi_options::small_shard_bytes", &rank_card::small_shard_bytes, r);
    check_alike("GSPMD_RANKS_PER_NODE", &rank_card::ranks_per_node, r);
  }
}

/// Returns the node of each rank, identified by the lowest rank on the node.
inline std::vector<int> nodes_of(const std::vector<rank_card>& cards) {
  const auto per_node = cards[0].ranks_per_node;
  const auto piece = [&](std::size_t r) { return per_node == 0 ? 0 : static_cast<std::int64_t>(r) / per_node; };
  std::vector<int> nodes;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    std::size_t lowest = static_cast<std::size_t>(cards[r].node);
    while (cards[lowest].node != cards[r].node || piece(lowest) != piece(r)) ++lowest;
    nodes.push_back(static_cast<int>(lowest));
  }
  return nodes;
}

/// Returns true if the machine of `rank` has more ranks than cores. All ranks of a machine get the same result.
inline bool is_oversubscribed(const std::vector<rank_card>& cards, int rank) {
  std::int64_t here = 0, cores = 0;
  for (const auto& card : cards)
    if (card.node == cards[static_cast<std::size_t>(rank)].node) {
      ++here;
      cores = cores < card.cores ? card.cores : cores;
    }
  return cores < here;
}

}  // namespace gspmd::detail
