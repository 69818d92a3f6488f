// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "build.hpp"

/// A document with its plan, in the document's names.
namespace plan_tool {

using gspmd::dynamic::instruction;
using gspmd::dynamic::placed_tensor;

struct planned_program {
  built_program built;
  gspmd::dynamic::inspection plan;

  [[nodiscard]] const gspmd::dynamic::mesh& mesh() const { return plan.mesh(); }
  [[nodiscard]] const gspmd::dynamic::program& program() const { return plan.program(); }
  /// Returns a value of the document. -1 is the label of nodes that the planner added for no value.
  [[nodiscard]] const named_value& value(int v) const {
    static const named_value unnamed{"(unnamed)", "made by the planner", "", dtype::f32, {}, false};
    return v < 0 ? unnamed : built.values[static_cast<std::size_t>(v)];
  }
  [[nodiscard]] const gspmd::dynamic::device_value& on_device(int v) const { return plan.values()[static_cast<std::size_t>(v)]; }

  /// Returns the placement of a value. Returns nullopt if no output needs the value, even if another node of its loop
  /// has its label.
  [[nodiscard]] std::optional<placed_tensor> placed(int v) const {
    auto found = plan.find(v);
    if (found && (found->type() != value(v).type || found->local_shape().size() != value(v).shape.size())) found.reset();
    return found;
  }
  /// Returns the number of the value with this name, or -1.
  [[nodiscard]] int find(std::string_view name) const {
    for (std::size_t i = 0; i < built.values.size(); ++i)
      if (built.values[i].name == name) return static_cast<int>(i);
    return -1;
  }
  /// Returns the document's name for the operator of an instruction.
  [[nodiscard]] static std::string kind_of(const instruction& i) { return i.kind.starts_with("compare_") ? "compare" : i.kind; }
  /// Return the operand and the result of a movement.
  [[nodiscard]] const placed_tensor& from(const instruction& i) const { return on_device(i.operands[0]).tensor; }
  [[nodiscard]] const placed_tensor& to(const instruction& i) const { return i.is_halo ? from(i) : on_device(i.result).tensor; }
};

/// Plans a program that was read. Returns nullopt if the program is refused; `errors` has the reason.
inline std::optional<planned_program> planned(built_program built, error_list& errors) {
  try {
    gspmd::dynamic::inspection plan(*built.program);
    return planned_program{std::move(built), std::move(plan)};
  } catch (const std::exception& e) {
    errors.add("", e.what());
    return {};
  }
}
inline std::optional<planned_program> plan_document(const json& document, devices on, error_list& errors) {
  auto built = program_builder(document, on, errors).build();
  if (!built) return {};
  return planned(std::move(*built), errors);
}

}  // namespace plan_tool
