// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/transport/mpi/call.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gspmd/detail/transport/meeting_subject.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// How far a rank is in the collectives of a group, counted alike on all members. When it waits there it has posted what the others need
/// to come as far.
class mpi_progress {
 public:
  struct place {
    std::uint32_t group = 0;  // 0: none
    std::uint32_t subject = 0;
    std::uint64_t collective = 0, step = 0;
  };

  void begin_group(std::uint32_t name) { here_.group = name; }
  void begin(std::uint32_t subject) {
    here_.subject = subjects_[++here_.collective % kept] = subject;
    here_.step = 0;
  }
  void end_step() { ++here_.step; }
  [[nodiscard]] const place& here() const { return here_; }
  [[nodiscard]] bool is_as_far(const place& other) const {
    if (here_.group == 0 || here_.group != other.group || here_.collective < other.collective) return false;
    if (here_.collective == other.collective && here_.step < other.step) return false;
    return here_.collective - other.collective < kept && subjects_[other.collective % kept] == other.subject;
  }

 private:
  static constexpr std::size_t kept = 64;
  place here_;
  std::array<std::uint32_t, kept> subjects_{};  // of the last collectives
};

/// Why a wait does not end, which MPI does not tell. A rank that has waited for half a second asks the one it waits for, in small
/// messages beside those of the collectives:
///
///   ask    goes on from rank to rank, each of which waits for the next. Comes it back twice to who sent it first, and nobody on its way
///          has ended a wait in between, then these ranks wait for each other and always will
///   gone   the answer of one that comes to no collective any more
///   tell   asks what somebody came for whose message says that it was something else than this rank came for
///   told   the answer, and whether who gives it takes messages still
///
/// A rank that computes answers nothing: it is waited for, however long.
class mpi_inquiries {
 public:
  static inline double patience_seconds = 0.5;  // a test has less

  bool yields = false;  // who waits: there are more ranks than cores

  /// Among the ranks of `all`, in which they take one tag.
  void begin(MPI_Comm all, int rank, int count) {
    all_ = all;
    rank_ = rank;
    count_ = count;
  }

  /// `mine` is there as long as this object.
  void add_group(const mpi_progress& mine) { groups_.push_back(&mine); }

  struct wait {
    int rank;  // that this one waits for
    const meeting_subject* subject;
    std::uint64_t number;
    mpi_progress::place needed;  // of `rank`, which is not missing if it is as far: messages may take long
  };
  [[nodiscard]] std::uint64_t next_number() { return ++waits_; }

  /// Asks and answers. Throws if `mine` will not end.
  [[gnu::noinline, gnu::cold]] void look(const wait& mine) {
    answer(&mine);
    auto m = question(message::ask);
    m.origin = rank_;
    m.origin_wait = m.sender_wait = mine.number;
    m.needed = mine.needed;
    m.signature = passed(0, mine);
    post(mine.rank, m);
  }
  /// Answers only. `mine` is null where this rank comes to nothing any more.
  [[gnu::noinline, gnu::cold]] void answer(const wait* mine) {
    forget_posted();
    for (;;) {
      int is_there = 0;
      MPI_Status status;
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag, all_, &is_there, &status), "MPI_Iprobe", rank_);
      if (is_there == 0) return;
      message m{};
      check_mpi(MPI_Recv(&m, sizeof m, MPI_BYTE, status.MPI_SOURCE, tag, all_, MPI_STATUS_IGNORE), "MPI_Recv", rank_);
      take(m, status.MPI_SOURCE, mine);
    }
  }

  /// `from` sent a message for something else than `subject`.
  [[noreturn, gnu::noinline, gnu::cold]] void throw_differs(int from, const meeting_subject& subject) {
    fail(subject);
    told_by_ = -1;
    post(from, question(message::tell));
    await(5, [&] { return told_by_ == from; });
    const bool knows = told_by_ == from && told_.text[0] != '\0' && told_.number != subject.number;
    throw error(different_collectives(rank_, last_text_, from, knows ? told_.text : "a collective before it"), rank_);
  }
  /// This rank fails in a collective, and takes no message any more.
  void fail(const meeting_subject& subject) {
    has_failed_ = 1;
    last_text_ = subject.text();
    last_number_ = subject.number;
  }
  /// Of a rank that has failed: waits, not too long, until MPI reads a message to `to` no more, because it `is_taken` or because `to` has
  /// failed too.
  template <class IsTaken>
  void await_taken(int to, IsTaken is_taken) {
    told_by_ = -1;
    await(2, [&] {
      if (is_taken()) return true;
      if (told_by_ == to && told_.hops != 0) return true;
      if (told_by_ == to || posted_.empty()) {
        told_by_ = -1;
        post(to, question(message::tell));
      }
      return false;
    });
  }

  /// Answers those that wait for this rank that it comes to nothing any more, until all ranks have come here; false if they have not
  /// in so many seconds. Collective. Then has_failed() is alike on all.
  [[gnu::noinline, gnu::cold]] bool part(double seconds) {
    const double until = MPI_Wtime() + seconds;
    int turns = 0;
    const auto is_late = [&] {
      answer(nullptr);
      if (++turns > 1000) ::usleep(200);
      else std::this_thread::yield();
      return MPI_Wtime() > until;
    };
    while (!posted_.empty())
      if (is_late()) return false;
    MPI_Request all_here = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(&has_failed_, &some_failed_, 1, MPI_INT, MPI_MAX, all_, &all_here), "MPI_Iallreduce", rank_);
    for (int are_here = 0;;) {
      check_mpi(MPI_Test(&all_here, &are_here, MPI_STATUS_IGNORE), "MPI_Test", rank_);
      if (are_here != 0) break;
      if (is_late()) return false;
    }
    has_failed_ = some_failed_;
    return true;
  }
  /// There may be messages that nobody has received.
  [[nodiscard]] bool has_failed() const { return has_failed_ != 0 || !posted_.empty(); }

 private:
  static constexpr int tag = 1;

  struct message {
    enum what : std::int32_t { ask, gone, tell, told };
    what kind;
    std::int32_t origin, hops;
    std::uint32_t number;
    std::uint64_t origin_wait, sender_wait;
    mpi_progress::place needed;  // of who gets it
    std::uint64_t signature;     // of the ranks on its way and the numbers of their waits
    char text[480];              // what the first rank on its way came for
  };
  struct posted {
    message content;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] static std::uint64_t passed(std::uint64_t signature, const wait& w) {
    return (signature ^ (static_cast<std::uint64_t>(w.rank) << 40) ^ w.number) * 0x9e3779b97f4a7c15U + 1;
  }
  [[nodiscard]] bool is_as_far(const mpi_progress::place& needed) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const mpi_progress* mine) { return mine->is_as_far(needed); });
  }
  static void write(message& m, const std::string& text) { m.text[text.copy(m.text, sizeof m.text - 1)] = '\0'; }

  static message question(message::what kind) {
    message m{};
    m.kind = kind;
    return m;
  }
  template <class IsOver>
  void await(double seconds, IsOver is_over) {
    for (const double until = MPI_Wtime() + seconds; !is_over() && MPI_Wtime() < until;) {
      answer(nullptr);
      ::usleep(200);
    }
  }
  /// A question is posted again when the last one by the same rank has been taken.
  void post(int to, const message& m) {
    if (m.kind == message::ask && std::any_of(posted_.begin(), posted_.end(), [&](const auto& p) {
          return p->content.kind == message::ask && p->content.origin == m.origin;
        }))
      return;
    posted_.push_back(std::make_unique<posted>(posted{m}));
    auto& p = *posted_.back();
    check_mpi(MPI_Issend(&p.content, sizeof p.content, MPI_BYTE, to, tag, all_, &p.request), "MPI_Issend", rank_);
  }
  void forget_posted() {
    const auto is_taken = [&](const auto& p) {
      int flag = 0;
      check_mpi(MPI_Test(&p->request, &flag, MPI_STATUS_IGNORE), "MPI_Test", rank_);
      return flag != 0;
    };
    posted_.erase(std::remove_if(posted_.begin(), posted_.end(), is_taken), posted_.end());
  }

  void take(message m, int from, const wait* mine) {
    switch (m.kind) {
      case message::ask:
        if (is_as_far(m.needed) && !(mine == nullptr && has_failed_ != 0)) return;
        if (mine == nullptr) {
          auto reply = question(message::gone);
          reply.sender_wait = m.sender_wait;
          return post(from, reply);
        }
        if (m.origin == rank_) {
          if (m.origin_wait != mine->number) return;
          if (m.signature == last_signature_) {
            fail(*mine->subject);
            throw error(different_collectives(rank_, last_text_, mine->rank, m.text), rank_);
          }
          last_signature_ = m.signature;
          return;
        }
        if (m.hops == 0) write(m, mine->subject->text());
        if (++m.hops > count_) return;  // round a circle that who asked first does not belong to
        m.signature = passed(m.signature, *mine);
        m.sender_wait = mine->number;
        m.needed = mine->needed;
        return post(mine->rank, m);
      case message::gone:
        if (mine == nullptr || from != mine->rank || m.sender_wait != mine->number) return;
        fail(*mine->subject);
        throw error("waits in a collective for rank " + std::to_string(from) +
                        ", whose communicator is gone; all ranks of a group must call the same collectives",
                    rank_);
      case message::tell: {
        auto reply = question(message::told);
        reply.hops = mine == nullptr ? 1 : 0;
        reply.number = mine != nullptr ? mine->subject->number : last_number_;
        write(reply, mine != nullptr ? mine->subject->text() : last_text_);
        return post(from, reply);
      }
      case message::told: told_ = m; told_by_ = from;
    }
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = -1, count_ = 0;
  std::vector<const mpi_progress*> groups_;
  std::uint64_t waits_ = 0;
  std::uint64_t last_signature_ = 0;
  std::vector<std::unique_ptr<posted>> posted_;
  int has_failed_ = 0, some_failed_ = 0;
  std::string last_text_;  // of what failed
  std::uint32_t last_number_ = 0;
  message told_{};
  int told_by_ = -1;
};

/// One wait of a rank, for others in turn.
class mpi_wait {
 public:
  mpi_wait(mpi_inquiries& inquiries, const meeting_subject& subject, const mpi_progress::place& needed = {})
      : inquiries_(inquiries), mine_{-1, &subject, 0, needed} {}

  /// Is called again and again while `rank` has not come. Throws if it will not.
  void idle(int rank) {
    if (rank != mine_.rank) {
      mine_.rank = rank;
      turns_ = 0;
      has_asked_ = false;
    }
    ++turns_;
    if (inquiries_.yields && turns_ > 100) std::this_thread::yield();
    if (turns_ % turns_between_looks == 0) look_at_clock();
  }
  [[nodiscard]] bool has_lost_patience() const { return has_asked_; }

 private:
  static constexpr std::int64_t turns_between_looks = 256;

  [[gnu::noinline, gnu::cold]] void look_at_clock() {
    const double now = MPI_Wtime();
    if (turns_ == turns_between_looks) {
      mine_.number = inquiries_.next_number();
      next_look_ = next_answer_ = now + mpi_inquiries::patience_seconds;
    } else if (now >= next_look_) {
      has_asked_ = true;
      inquiries_.look(mine_);
      next_look_ = now + mpi_inquiries::patience_seconds;
    } else if (now >= next_answer_) {
      inquiries_.answer(&mine_);
      next_answer_ = now + 0.01;
    }
  }

  mpi_inquiries& inquiries_;
  mpi_inquiries::wait mine_;
  std::int64_t turns_ = 0;
  bool has_asked_ = false;
  double next_look_ = 0, next_answer_ = 0;
};

}  // namespace gspmd::detail
