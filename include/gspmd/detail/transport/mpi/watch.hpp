// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// A wait of this rank, for several ranks one after the other.
struct mpi_wait {
  const meeting_subject& subject;  // the collective that it waits in
  int rank = -1;                   // for which it waits
  std::uint32_t turns = 0;
  std::uint64_t number = 0;  // 0: the wait has just begun
  double since = 0;
  std::string (*never)(int rank) = never_comes;  // the error text if `rank` has left
};

/// Detects waits that will never end, which MPI does not report: ranks that wait for each other in different
/// collectives, or for a rank that calls no further collective. A rank that computes is waited for without a limit.
///
///  1. A rank that has waited for some time votes: it sends all ranks a card with its subject and the rank for which
///     it waits. A rank that leaves votes immediately. A vote is one MPI_Iallgather, which ends when the last rank
///     has voted. Meanwhile, ranks that need not wait continue.
///  2. If a second vote has the same cards, all ranks were waiting when the first vote ended, and messages that were
///     sent before had time to arrive.
///  3. Then each rank follows the chain of waits: the rank for which it waits, the rank for which that rank waits,
///     and so on. The rank waits in vain if the chain ends at a rank that has left, or in a cycle of ranks that are
///     not all in the same collective. If they are in the same collective, a long message is in transit.
class mpi_watch {
 public:
  static inline double patience_seconds = 0.75;  // tests use less

  /// `comm` must not be used for anything else, because a rank that has voted is in a collective of `comm` until all
  /// ranks have voted.
  void begin(MPI_Comm comm) {
    comm_ = comm;
    int count = 0;
    MPI_Comm_size(comm, &count);
    MPI_Comm_rank(comm, &rank_);
    cards_.resize(static_cast<std::size_t>(count));
    cards_before_.resize(cards_.size());
  }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }

  /// Is called repeatedly while `rank` has not arrived. Throws if it never will.
  void turn(mpi_wait& wait, int rank) {
    if (rank != wait.rank) {
      wait.rank = rank;
      wait.number = 0;
    }
    if (++wait.turns % turns_between_looks == 0) look(wait);
  }

  /// Announces that this rank calls no further collective, and waits until all ranks have announced it. Returns false
  /// if some rank has not announced it within this number of seconds. Collective. If it returns true, has_failed() is
  /// the same on all ranks.
  [[gnu::noinline, gnu::cold]] bool leave(double seconds) {
    const double until = MPI_Wtime() + seconds;
    for (int turns = 0; MPI_Wtime() <= until; ++turns) {
      if (has_left()) return true;
      if (turns > 100) ::usleep(100);
    }
    return false;
  }
  /// Does one step of leave, without waiting. Returns true when all ranks have left.
  bool has_left() {
    if (leaving_ == 0) leaving_ = ++waits_;
    if (!has_voted(card_of(leaving_, nobody))) return false;
    if (!std::all_of(cards_.begin(), cards_.end(), [](const card& c) { return c.rank == nobody; })) return false;
    has_failed_ = std::any_of(cards_.begin(), cards_.end(), [](const card& c) { return c.has_failed != 0; });
    leaving_ = 0;
    return true;
  }
  /// Returns true if some rank has abandoned a collective. Then some messages may never be received.
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  void fail() { has_failed_ = true; }

 private:
  static constexpr int turns_between_looks = 32;
  static constexpr std::int32_t nobody = -1;

  struct card {
    std::uint64_t wait;
    std::int32_t rank;  // the rank that it waits for; `nobody`: it has left
    std::uint32_t subject;
    std::int32_t has_failed;
    char text[484];  // of the subject
  };

  [[nodiscard]] card card_of(std::uint64_t wait, int rank) const {
    card c{};
    c.wait = wait;
    c.rank = rank;
    c.has_failed = has_failed_ ? 1 : 0;
    return c;
  }

  [[gnu::noinline, gnu::cold]] void look(mpi_wait& wait) {
    const double now = MPI_Wtime();
    if (wait.number == 0) {
      wait.number = ++waits_;
      wait.since = now;
    }
    if (now < wait.since + patience_seconds) return;
    card mine = card_of(wait.number, wait.rank);
    mine.subject = wait.subject.number;
    const auto text = wait.subject.text();
    mine.text[text.copy(mine.text, sizeof mine.text - 1)] = '\0';
    if (!has_voted(mine)) return;
    wait.since = now;
    if (is_as_before() && cards_[static_cast<std::size_t>(rank_)].wait == wait.number) judge(wait);
  }

  /// Votes, unless this rank has voted, and tests whether the vote has ended. Returns true if it has; then cards_ has
  /// the cards of all ranks.
  bool has_voted(const card& mine) {
    if (request_ == MPI_REQUEST_NULL) {
      mine_ = mine;
      cards_.swap(cards_before_);
      check_mpi(MPI_Iallgather(&mine_, sizeof mine_, MPI_BYTE, cards_.data(), sizeof mine_, MPI_BYTE, comm_, &request_),
                "MPI_Iallgather", rank_);
    }
    int is_over = 0;
    check_mpi(MPI_Test(&request_, &is_over, MPI_STATUS_IGNORE), "MPI_Test", rank_);
    return is_over != 0;
  }
  [[nodiscard]] bool is_as_before() const {
    return std::equal(cards_.begin(), cards_.end(), cards_before_.begin(),
                      [](const card& a, const card& b) { return a.wait == b.wait; });
  }

  /// Throws if this wait is in vain.
  void judge(const mpi_wait& wait) {
    const auto card_of_rank = [this](int rank) -> const card& { return cards_[static_cast<std::size_t>(rank)]; };
    const auto n = cards_.size();
    int at = rank_, first = -1;  // the first rank whose next rank is in another collective
    bool is_in_vain = false;
    for (std::size_t k = 0; k < 2 * n && !is_in_vain; ++k) {  // after n steps `at` is in the cycle, if the chain has a cycle
      const auto& here = card_of_rank(at);
      const auto& next = card_of_rank(here.rank);
      const bool differs = here.subject != next.subject;
      if (differs && first < 0) first = at;
      is_in_vain = next.rank == nobody || (differs && k >= n);
      at = here.rank;
    }
    if (!is_in_vain) return;
    fail();
    const auto& one = card_of_rank(first);
    const auto& other = card_of_rank(one.rank);
    if (other.rank == nobody) throw located(error(wait.never(one.rank), rank_), wait.subject);
    throw error(different_collectives(first, one.text, one.rank, other.text), rank_);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = -1;
  std::uint64_t waits_ = 0, leaving_ = 0;  // leaving_: the wait of has_left, or 0
  card mine_{};                            // in the current vote
  std::vector<card> cards_, cards_before_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool has_failed_ = false;
};

}  // namespace gspmd::detail
