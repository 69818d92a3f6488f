// SPDX-License-Identifier: Apache-2.0
// A flow on a torus by Fourier transforms, on threads.
// args: --points 30 --devices 3 --steps 10 --frames 2
// optimise: -O1
// precompiled: yes

#include "flow.hpp"

#include <gspmd/dynamic.hpp>

#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: spectral [--points N] [--devices D] [--steps N] [--frames N] [--out DIR]\n"
      "  --devices D    each a thread (4)\n" +
      std::string(spectral::options_text);
  return command_line::report_errors(usage.c_str(), [&] {
    return spectral::simulate(spectral::parse(argc, argv, true),
                              [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); });
  });
}
