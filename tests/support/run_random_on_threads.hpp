// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "gspmd/comm/threads.hpp"
#include "support/run_random.hpp"

namespace reference {

/// run_and_check on one thread per device. Returns the mistake of the first device that has one.
inline std::string run_and_check_on_threads(const random_program& program, const ir::plan_view& plan) {
  std::vector<std::string> wrong(static_cast<std::size_t>(program.device_count()));
  launch(gspmd::threads{}, program.device_count(),
         [&](auto& comm) { wrong[static_cast<std::size_t>(comm.device(0))] = run_and_check(comm, program, plan); });
  for (const auto& message : wrong)
    if (!message.empty()) return message;
  return {};
}

}  // namespace reference
