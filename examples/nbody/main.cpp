// SPDX-License-Identifier: Apache-2.0
// Gravity between all pairs of bodies, by leapfrog, on threads.
// args: --bodies 150 --devices 4 --frames 3
// optimise: -O1
// precompiled: yes

#include "gravity.hpp"

#include <gspmd/dynamic.hpp>

#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: nbody [--bodies N] [--devices D] [--steps N] [--frames N] [--out DIR]\n"
      "  --devices D    each a thread (4)\n" +
      std::string(nbody::options_text);
  return command_line::report_errors(usage.c_str(), [&] {
    return nbody::simulate(nbody::parse(argc, argv, true),
                           [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); });
  });
}
