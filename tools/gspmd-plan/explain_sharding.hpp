// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "table.hpp"

/// Finds the origin of a sharding: for every axis, the path back to an annotation.
namespace plan_tool {

class sharding_reasons {
 public:
  explicit sharding_reasons(const planned_program& p) : p_(p) {}

  [[nodiscard]] std::vector<std::string> of(int v) const {
    const auto& value = p_.value(v);
    const auto placed = p_.placed(v);
    if (!placed) return {value.name + " has no sharding: no output needs it"};
    if (const int reader = p_.plan.moved_with(v); reader >= 0) {
      auto lines = of(reader);
      lines.insert(lines.begin(), value.name + " is not made: one movement brings " + p_.value(reader).name);
      return lines;
    }
    const auto completed = p_.plan.completed(v);
    std::vector<std::string> lines{value.name + " is " + placed->text()};
    for (const auto& [axis, size] : p_.mesh().axes()) {
      const int dim = placed->dim_split_by(axis);
      const int completed_dim = completed->dim_split_by(axis);
      std::string line = "  " + axis + ": ";
      if (size == 1) {
        line += "has one device and cuts nothing";
      } else if (placed->is_partial_over(axis)) {
        line += partial_reason(v, *placed, axis);
      } else if (dim < 0 && completed_dim < 0) {
        line += replicated_reason(v, axis);
      } else if (dim < 0) {
        line += "replicated; completion found dim " + std::to_string(completed_dim) + " (" + way(v, axis) +
                "), but this sends fewer bytes";
      } else {
        line += "splits dim " + std::to_string(dim);
        line +=
            completed_dim == dim
                ? ", " + way(v, axis)
                : ", chosen because it sends the fewest bytes" +
                      (completed_dim < 0 ? std::string()
                                         : "; completion found dim " + std::to_string(completed_dim) + " (" + way(v, axis) + ")");
      }
      lines.push_back(line);
    }
    return lines;
  }

 private:
  /// `annotated on a, through einsum c, through relu d`
  [[nodiscard]] std::string way(int v, const std::string& axis) const {
    const auto found = p_.plan.way(v, axis);
    std::string t = "annotated on " + p_.value(found.annotated).name;
    for (const auto& hop : found.hops) {
      using direction = gspmd::dynamic::split_way::hop::direction;
      t += hop.to == direction::back ? ", back through " : hop.to == direction::forward ? ", through " : ", across ";
      t += hop.op + ' ' + p_.value(hop.label).name;
    }
    return t;
  }

  [[nodiscard]] std::string replicated_reason(int v, const std::string& axis) const {
    for (const auto& i : p_.plan.instructions())
      if (i.label == v && i.communicates && p_.from(i).is_partial_over(axis) && !p_.to(i).is_partial_over(axis))
        return "replicated; a reduced dim was split by it, and " + i.kind + " combines the parts (" +
               gspmd::name_of(p_.from(i).partial_kind()) + ')';
    if (p_.plan.is_fixed(v)) return "replicated, as annotated on " + p_.value(v).name;
    return "replicated; no annotation reaches it";
  }

  [[nodiscard]] std::string partial_reason(int v, const placed_tensor& placed, const std::string& axis) const {
    const auto kind = std::string(gspmd::name_of(placed.partial_kind()));
    if (p_.value(v).is_input) return "partial (" + kind + "), as annotated";
    for (const auto& i : p_.plan.instructions()) {
      if (i.result < 0 || i.result != p_.plan.result_of(v)) continue;
      for (const int o : i.operands) {
        const auto& [label, operand] = p_.on_device(o);
        const auto& name = p_.value(label).name;
        if (operand.is_partial_over(axis))
          return "partial (" + kind + "), passed on from " + name + ", where " + p_.plan.operator_of(v) + " is linear";
        if (const int dim = operand.dim_split_by(axis); dim >= 0)
          return "partial (" + kind + "): it splits dim " + std::to_string(dim) + " of " + name +
                 ", which is reduced; a user that needs the whole result pays for the reduction";
      }
    }
    return "partial (" + kind + ')';
  }

  const planned_program& p_;
};

}  // namespace plan_tool
