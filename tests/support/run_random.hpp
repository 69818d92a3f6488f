// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfenv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gspmd/detail/ir/can_alias.hpp"
#include "gspmd/detail/passes/list/make_plan.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/run/interpreter.hpp"
#include "support/random_program.hpp"
#include "support/sanitized.hpp"

namespace reference {

/// Returns, for each output, an input that it may overwrite, or -1. Different outputs have different inputs.
inline std::vector<int> overwritten_inputs(const ir::plan_view& plan) {
  std::vector<int> over;
  std::vector<bool> is_taken(plan.inputs.size());
  const auto bytes = [&](int v) { return ir::elements(plan.value(v).local) * ir::bytes_of(plan.value(v).type); };
  for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
    over.push_back(-1);
    for (std::size_t n = 0; n < plan.inputs.size() && over[k] < 0; ++n) {
      const std::size_t i = (n + k + plan.steps.size()) % plan.inputs.size();  // not always the first input
      if (is_taken[i] || bytes(plan.inputs[i]) != bytes(plan.outputs[k]) || !ir::can_alias(plan, k, i)) continue;
      is_taken[i] = true;
      over[k] = static_cast<int>(i);
    }
  }
  return over;
}

/// A planned program on the devices of `comm`, as in a step object. Arenas are the communicator's if it provides them.
/// Inputs and outputs are in the caller's memory. `program` and the data that `plan` refers to must outlive this
/// object.
class bound_program {
 public:
  template <class Comm>
  bound_program(Comm& comm, const random_program& program, const ir::plan_view& plan)
      : program_(program), plan_(plan), steps_(plan) {
    for (int d = 0; d < comm.local_count(); ++d) {
      ids_.push_back(comm.device(d));
      for (std::size_t k = 0; k < plan.inputs.size(); ++k)
        inputs_.push_back(program.local_input(static_cast<int>(k), comm.device(d), plan.value(plan.inputs[k]).layout));
      for (const int o : plan.outputs) {
        const auto& v = plan.value(o);
        outputs_.emplace_back(static_cast<std::size_t>(ir::elements(v.local) * ir::bytes_of(v.type)));
      }
    }
    for (const auto& input : inputs_) given_.push_back(input.data());
    for (auto& output : outputs_) results_.push_back(output.data());
    bound_.bind(comm, plan_);
  }
  bound_program(const bound_program&) = delete;
  bound_program& operator=(const bound_program&) = delete;

  template <class Comm>
  void run(Comm& comm) {
    bound_.bind(comm, plan_, given_.data(), results_.data());
    steps_.run(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
  }

  /// Returns the mistake in the outputs, or "".
  [[nodiscard]] std::string wrong() const {
    const auto count = plan_.outputs.size();
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const auto k = i % count;
      auto message =
          program_.check_output(static_cast<int>(k), ids_[i / count], plan_.value(plan_.outputs[k]).layout, outputs_[i]);
      if (!message.empty()) return message + "\n" + program_.describe();
    }
    return {};
  }

  [[nodiscard]] const std::vector<std::vector<std::byte>>& outputs() const { return outputs_; }

  /// Runs with outputs that overwrite inputs, if that is allowed. The inputs are lost.
  template <class Comm>
  void run_over_inputs(Comm& comm) {
    const auto over = overwritten_inputs(plan_);
    for (std::size_t d = 0; d < ids_.size(); ++d)
      for (std::size_t k = 0; k < over.size(); ++k)
        if (over[k] >= 0)
          results_[d * over.size() + k] = inputs_[d * plan_.inputs.size() + static_cast<std::size_t>(over[k])].data();
    run(comm);
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      if (!outputs_[i].empty()) std::memmove(outputs_[i].data(), results_[i], outputs_[i].size());
  }

 private:
  const random_program& program_;
  const ir::plan_view plan_;
  ir::interpreter steps_;
  ir::bound_devices bound_;
  std::vector<int> ids_;                        // of the devices
  std::vector<std::vector<std::byte>> inputs_;  // of device d, input k: [d * inputs + k]
  std::vector<std::vector<std::byte>> outputs_;
  std::vector<const void*> given_;
  std::vector<void*> results_;
};

/// Runs a planned program on the devices of `comm` and returns the mistake in their outputs, or "". First the outputs
/// have separate memory; then they overwrite inputs, if that is allowed.
template <class Comm>
std::string run_and_check(Comm& comm, const random_program& program, const ir::plan_view& plan) {
  bound_program bound(comm, program, plan);
  std::feclearexcept(FE_ALL_EXCEPT);
  for (int repeat = 0; repeat < 2; ++repeat) bound.run(comm);  // the second time with a used arena
  if (program.has_clean_padding() && std::fetestexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW) != 0)
    return "a floating-point exception was raised\n" + program.describe();
  if (maps::met_padding) return "map was called for padding\n" + program.describe();
  if (auto message = bound.wrong(); !message.empty()) return message;
  bound.run_over_inputs(comm);
  if (auto message = bound.wrong(); !message.empty()) return "written over inputs: " + message;
  return {};
}

/// Returns a number from the environment, for longer runs than usual.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}
/// Returns the number of random programs of a test: GSPMD_PROGRAMS, or `usual`. A sanitizer takes ten times as long, so
/// it is a fourth then.
inline std::uint64_t programs(std::uint64_t usual) { return setting("GSPMD_PROGRAMS", is_sanitized ? usual / 4 : usual); }

}  // namespace reference
