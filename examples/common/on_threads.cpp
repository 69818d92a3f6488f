// SPDX-License-Identifier: Apache-2.0
#include <gspmd/dynamic.hpp>
#include <gspmd/native/native_code.hpp>

#include "command_line.hpp"
#include "machine.hpp"

namespace examples {

int on_threads(int argc, char** argv, example* body) {
  const auto run = [](const auto& program, const machine::pointers& inputs) { return program.run(gspmd::threads{}, inputs); };
  return run_main([&] { return body(argc, argv, machine{0, run, run}); });
}

}  // namespace examples
