// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gspmd/comm/mpi.hpp"
#include "gspmd/detail/transport/meeting_delay.hpp"
#include "support/run_random.hpp"

namespace reference {

/// Runs planned programs over MPI as users do: several on one communicator, in turns and with nothing between them that would
/// bring the ranks together again. Every third lot runs with delays at the meetings.
class mpi_lots {
 public:
  explicit mpi_lots(gspmd::mpi_options options = {}) : options_(options) {}

  /// Takes a program into the lot, and runs the lot if it is full; returns what is wrong with its outputs.
  std::string add(random_program program) {
    lot_.push_back(std::make_unique<planned>(std::move(program)));
    return lot_.size() == programs_of_lot ? run() : std::string();
  }
  /// Runs what is left.
  std::string run() {
    std::optional<ir::delayed_meetings> delays;
    if (++lots_ % 3 == 0) delays.emplace();
    gspmd::mpi_communicator comm(MPI_COMM_WORLD, options_);
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
    bound.clear();
    lot_.clear();
    return wrong;
  }

 private:
  static constexpr std::size_t programs_of_lot = 5;

  struct planned {
    explicit planned(random_program made) : program(std::move(made)), plan(ir::make_plan(program.g, program.mesh)) {
      ir::overlap_moves(plan, 1);
    }
    random_program program;
    ir::plan plan;
  };

  gspmd::mpi_options options_;
  std::vector<std::unique_ptr<planned>> lot_;
  int lots_ = 0;
};

}  // namespace reference
