// SPDX-License-Identifier: Apache-2.0
// Maxwell's equations in a metal box on Yee's staggered grid, on threads.
// args: --cells 60x41 --mesh 2x2 --frames 3
// optimise: -O1
// precompiled: yes

#include "cavity.hpp"

#include <gspmd/dynamic.hpp>

#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: yee [--cells NxM] [--mesh AxB] [--steps N] [--frames N] [--out DIR]\n"
      "  --mesh AxB     devices along the dims, each a thread (2x2)\n" +
      std::string(yee::options_text);
  return command_line::report_errors(usage.c_str(), [&] {
    return yee::simulate(yee::parse(argc, argv, true), 4,
                         [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); });
  });
}
