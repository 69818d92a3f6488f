// SPDX-License-Identifier: Apache-2.0
// Particles in cells: plasma oscillation and counter-streaming beams, on threads.
// args: --particles 3001 --devices 3 --frames 80
// optimise: -O1
// precompiled: yes

#include "plasma.hpp"

#include <gspmd/dynamic.hpp>

#include <string>

#include "../command_line.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: pic [--particles N] [--points N] [--devices D] [--frames N] [--out DIR]\n"
      "  --devices D    each a thread (4)\n" +
      std::string(pic::options_text);
  return command_line::report_errors(usage.c_str(), [&] {
    return pic::simulate(pic::parse(argc, argv, true),
                         [](const auto& program, const auto& inputs) { return program.run(gspmd::threads{}, inputs); });
  });
}
