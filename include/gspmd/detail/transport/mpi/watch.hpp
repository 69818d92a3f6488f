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

/// A wait of this rank, for others in turn.
struct mpi_wait {
  const meeting_subject& subject;  // in which it waits
  int rank = -1;                   // that it waits for
  std::uint32_t turns = 0;
  std::uint64_t number = 0;  // 0: it has hardly begun
  double since = 0;
  std::string (*never)(int rank) = never_comes;  // the error text if `rank` has left
};

/// Finds out that a wait will never end, which MPI does not tell: ranks wait for each other in different collectives, or for one that
/// comes to none any more. A rank that computes is waited for, however long.
///
///  1. Who has waited for some time votes: it gives all ranks a card that says in what it waits, and for whom. So does, at once, who
///     leaves. A vote is one MPI_Iallgather, which ends when the last rank has voted; meanwhile those that can go on do.
///  2. Where a second vote brings the same cards, all ranks were waiting when the first one ended, and what had been sent by then has
///     had time to arrive.
///  3. Then a rank waits in vain if the one that it waits for, or the one that this one waits for, and so on, has left, or if this leads
///     to a circle of ranks that are not all in the same collective. Where they are, a long message is on its way.
class mpi_watch {
 public:
  static inline double patience_seconds = 0.75;  // a test has less

  /// `comm` is a communicator that nothing else uses: who votes is in a collective there, for as long as the others take.
  void begin(MPI_Comm comm) {
    comm_ = comm;
    int count = 0;
    MPI_Comm_size(comm, &count);
    MPI_Comm_rank(comm, &rank_);
    cards_.resize(static_cast<std::size_t>(count));
    cards_before_.resize(cards_.size());
  }
  [[nodiscard]] MPI_Comm comm() const { return comm_; }

  /// Is called again and again while `rank` has not come. Throws if it never will.
  void turn(mpi_wait& wait, int rank) {
    if (rank != wait.rank) {
      wait.rank = rank;
      wait.number = 0;
    }
    if (++wait.turns % turns_between_looks == 0) look(wait);
  }

  /// Announces that this rank comes to no collective any more, until all ranks have announced it. Returns false if some rank has not
  /// after this number of seconds. Collective. Then has_failed() is alike on all.
  [[gnu::noinline, gnu::cold]] bool leave(double seconds) {
    const double until = MPI_Wtime() + seconds;
    for (int turns = 0; MPI_Wtime() <= until; ++turns) {
      if (has_left()) return true;
      if (turns > 100) ::usleep(100);
    }
    return false;
  }
  /// One step of leave, which does not wait: returns true when all ranks have left.
  bool has_left() {
    if (leaving_ == 0) leaving_ = ++waits_;
    if (!has_voted(card_of(leaving_, nobody))) return false;
    if (!std::all_of(cards_.begin(), cards_.end(), [](const card& c) { return c.rank == nobody; })) return false;
    has_failed_ = std::any_of(cards_.begin(), cards_.end(), [](const card& c) { return c.has_failed != 0; });
    leaving_ = 0;
    return true;
  }
  /// Some rank has given up a collective. There may be messages that nobody has received.
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  void fail() { has_failed_ = true; }

 private:
  static constexpr int turns_between_looks = 32;
  static constexpr std::int32_t nobody = -1;

  struct card {
    std::uint64_t wait;
    std::int32_t rank;  // that it waits for; nobody: it has left
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

  /// Votes, unless this rank has, and asks for the end of the vote: what the cards are then.
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
    int at = rank_, first = -1;  // the first of two that are not in the same collective
    bool is_in_vain = false;
    for (std::size_t k = 0; k < 2 * n && !is_in_vain; ++k) {  // after n steps we go round the circle, if there is one
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
  card mine_{};                            // in the vote that goes on
  std::vector<card> cards_, cards_before_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool has_failed_ = false;
};

}  // namespace gspmd::detail
