// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backends.hpp"
#include "options.hpp"

/// The application gspmd-plan, whatever the backends of the program that includes it.
namespace plan_tool {

/// The report of one process, so that of several only one prints it.
struct report {
  int status = 0;
  std::string out;
  std::string err;
};

/// The differences between the programs that include the application.
struct surroundings {
  std::int64_t devices_here = 0;  // 0: as many as the mesh has
  std::int64_t most_devices = 0;
  bool writes = true;  // of several processes one does
  bool is_terminal = false;
  bool shows_progress = false;      // of a search, on the standard error
  launcher launch;                  // runs a plan on the backend that the options name
  std::function<bool(bool)> agree;  // whether all processes are sound
};

/// Runs the program.
report run_application(const options& o, const surroundings& here);

/// Prints the help, or what is wrong with the command line; -1: neither.
int answer_usage(const char* usage, int argc, char** argv, options& o, bool talks);

int say(const report& r);

}  // namespace plan_tool
