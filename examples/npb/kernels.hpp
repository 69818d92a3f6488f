// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmark.hpp"

namespace npb {

/// The command line: kernels, a class, and numbers of devices.
struct options {
  std::vector<std::string> kernels;
  char name = 'S';
  std::vector<std::int64_t> devices;
};

/// Reads KERNEL CLASS; the words behind them are the caller's. Throws command_line::usage_error.
options parse(int argc, char** argv);

/// Runs the kernels, prints what they gave beside what NPB publishes, and returns 0 if all is right, else 1.
int run_kernels(const options& o, const machine& m);

}  // namespace npb
