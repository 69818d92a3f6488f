// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/native/native_code.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "benchmark.hpp"

namespace npb {

/// The command line: kernels, a class, whether to use native code, and numbers of devices.
struct options {
  std::vector<std::string> kernels;
  char name = 'S';
  bool is_native = false;
  int read = 3;  // words of the command line
  std::vector<std::int64_t> devices;
};

/// Reads KERNEL CLASS [native]. The caller reads the following words. Throws command_line::usage_error.
options parse(int argc, char** argv);

/// Returns a function that prepares programs for run(program, inputs). A program is one of `dynamic`, or its native
/// code, for which the compiler reads the headers in `include`.
template <class Run>
std::function<runner(const gspmd::dynamic::program&)> preparing(bool is_native, const std::string& include, Run run) {
  return [=](const gspmd::dynamic::program& program) -> runner {
    if (!is_native) return [=](const auto& inputs) { return run(program, inputs); };
    gspmd::dynamic::native_options options;
    options.include = include;
    const gspmd::dynamic::native_code code(program, options);
    if (!code.is_used()) std::printf("no native code: %s\n", code.why_not().c_str());
    return [=](const auto& inputs) { return run(code, inputs); };
  };
}

/// Runs the kernels and prints their results next to NPB's published results. Returns 0 if all is right, else 1.
int run_kernels(const options& o, const machine& m);

}  // namespace npb
