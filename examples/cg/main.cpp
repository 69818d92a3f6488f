// SPDX-License-Identifier: Apache-2.0
// Poisson's equation on a gear with a hole, by conjugate gradients with a sparse matrix, on threads.
// args: --side 60 --devices 3
// optimise: -O1
// precompiled: yes

#include "poisson.hpp"

#include <gspmd/dynamic.hpp>

#include <cstdio>
#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: cg [--side N] [--devices D] [--between N] [--out FILE]\n  --devices D    each a thread (4)\n" +
      std::string(cg::options_text);
  return command_line::report_errors(usage.c_str(), [&] {
    return cg::solve(cg::parse(argc, argv, true),
                     [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); });
  });
}
