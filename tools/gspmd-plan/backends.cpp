// SPDX-License-Identifier: Apache-2.0
#include "backends.hpp"

namespace plan_tool {

std::vector<any_array> run_on(const std::string& backend, const gspmd::dynamic::program& program,
                              const std::vector<const void*>& inputs) {
  if (backend == "serial") return program.run(gspmd::serial{}, inputs);
  if (backend == "threads") return program.run(gspmd::threads{}, inputs);
  return program.run(gspmd::simulated{}, inputs);
}

}  // namespace plan_tool
