// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backends.hpp"
#include "options.hpp"

/// The application gspmd-plan, with the backends of the program that includes it.
namespace plan_tool {

/// The report of one process. If there are several processes, only one prints its report.
struct report {
  int status = 0;
  std::string out;
  std::string err;
};

/// The differences between the programs that include the application.
struct surroundings {
  std::int64_t devices_here = 0;  // 0: the number of devices in the mesh
  std::int64_t most_devices = 0;
  bool writes = true;  // one of several processes writes
  bool is_terminal = false;
  bool shows_progress = false;      // of a search, on stderr
  launcher launch;                  // runs a plan on the backend that the options name
  std::function<bool(bool)> agree;  // returns true if all processes are sound
};

/// Runs the program.
report run_application(const options& o, const surroundings& here);

/// Prints the help, the version, or the mistake on the command line. Returns -1 if the command line has no mistake and
/// asks for neither help nor version.
int answer_usage(const char* usage, int argc, char** argv, options& o, bool talks);

int say(const report& r);

}  // namespace plan_tool
