// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/detail/transport/meeting_delay.hpp"
#include "gspmd/mpi.hpp"
#include "support/run_random.hpp"

namespace reference {

/// Returns the number of random programs on this number of ranks. On 8 ranks it is a fourth, since each rank generates
/// and plans all programs.
inline std::uint64_t programs_on(int ranks, std::uint64_t usual) { return programs(ranks < 8 ? usual : usual / 4); }

/// Runs planned programs over MPI as users do: several programs on one communicator, interleaved, without
/// synchronisation between them. A program is planned once and runs with each of the options. Every third lot runs with
/// delays at the points where ranks synchronise.
class mpi_lots {
 public:
  explicit mpi_lots(std::vector<gspmd::mpi_options> ways) : ways_(std::move(ways)) {}

  /// Adds a program to the lot, and runs the lot if it is full. Returns the mistake in its outputs, or "".
  std::string add(random_program program) {
    lot_.push_back(std::make_unique<planned>(std::move(program), lot_.size() % 2 == 0));
    return lot_.size() == programs_of_lot ? run() : std::string();
  }
  /// Runs the remaining programs.
  std::string run() {
    std::optional<ir::delayed_meetings> delays;
    if (++lots_ % 3 == 0) delays.emplace();
    std::string wrong;
    for (const auto& way : ways_)
      if (wrong.empty()) wrong = run_in(way);
    lot_.clear();
    return wrong;
  }

 private:
  static constexpr std::size_t programs_of_lot = 5;

  [[nodiscard]] std::string run_in(const gspmd::mpi_options& way) const {
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, way);
    std::vector<std::unique_ptr<bound_program>> bound;
    for (const auto& p : lot_) bound.push_back(std::make_unique<bound_program>(comm, p->program, ir::plan_view(p->plan)));
    for (int turn = 0; turn < 3; ++turn)
      for (const auto& b : bound) b->run(comm);
    std::string wrong;
    const auto check = [&] {
      for (const auto& b : bound)
        if (wrong.empty()) wrong = b->wrong();
    };
    check();
    for (const auto& b : bound) b->run_over_inputs(comm);
    check();
    return wrong;
  }

  struct planned {
    planned(random_program made, bool is_overlapped)
        : program(std::move(made)), plan(ir::plan_at_run_time(program.g, program.mesh, asked(is_overlapped))) {
      ir::overlap_moves(plan, 1);
    }
    static ir::plan_request asked(bool is_overlapped) {
      ir::plan_request request;
      if (is_overlapped) request.hide = ir::hide_collectives;
      return request;
    }
    random_program program;
    ir::plan plan;
  };

  std::vector<gspmd::mpi_options> ways_;
  std::vector<std::unique_ptr<planned>> lot_;
  int lots_ = 0;
};

}  // namespace reference
