// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "gspmd/detail/exec/interpreter.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "support/random_program.hpp"

namespace reference {

/// Runs a planned program on the devices of `comm` and returns what is wrong with their outputs; empty if nothing is.
template <class Comm>
std::string run_and_check(Comm& comm, const random_program& program, const ir::plan_view& plan) {
  const auto count = static_cast<std::size_t>(comm.local_count());
  const auto input_count = plan.inputs.size();
  const auto output_count = plan.outputs.size();
  std::vector<std::vector<std::byte>> buffers;
  std::vector<ir::aligned_bytes> arenas;
  std::vector<const void*> inputs(count * input_count + 1);
  std::vector<void*> outputs(count * output_count + 1);
  std::vector<std::vector<std::byte>> results(count * output_count);
  buffers.reserve(count * input_count);
  for (std::size_t d = 0; d < count; ++d) {
    arenas.emplace_back(plan.arena_bytes);
    for (std::size_t k = 0; k < input_count; ++k) {
      buffers.push_back(
          program.local_input(static_cast<int>(k), comm.device(static_cast<int>(d)), plan.value(plan.inputs[k]).layout));
      inputs[d * input_count + k] = buffers.back().data();
    }
    for (std::size_t k = 0; k < output_count; ++k) {
      const auto& v = plan.value(plan.outputs[k]);
      auto& buffer = results[d * output_count + k];
      buffer.resize(static_cast<std::size_t>(ir::elements(v.local) * ir::bytes_of(v.type)));
      outputs[d * output_count + k] = buffer.data();
    }
  }
  std::vector<ir::device_memory> devices;
  for (std::size_t d = 0; d < count; ++d)
    devices.push_back({inputs.data() + d * input_count, outputs.data() + d * output_count, arenas[d].get(),
                       plan.mesh->coordinates_of(comm.device(static_cast<int>(d)))});
  std::vector<const void*> from(count);
  std::vector<void*> to(count);
  ir::interpreter steps(plan);
  for (int repeat = 0; repeat < 2; ++repeat)
    steps.run(comm, devices.data(), from.data(), to.data());  // the second time with a used arena
  for (std::size_t d = 0; d < count; ++d)
    for (std::size_t k = 0; k < output_count; ++k) {
      auto message = program.check_output(static_cast<int>(k), comm.device(static_cast<int>(d)),
                                          plan.value(plan.outputs[k]).layout, results[d * output_count + k]);
      if (!message.empty()) return message + "\n" + program.describe();
    }
  return {};
}

/// A number from the environment, for longer runs than the usual one.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace reference
