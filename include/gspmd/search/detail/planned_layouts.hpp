// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/search/detail/input_groups.hpp"
#include "gspmd/search/detail/input_layout.hpp"

/// The inputs of a plan, in the representation of a search.
namespace gspmd::detail {

/// The annotations of all groups of inputs of a program, in their order.
using group_layouts = constant_vector<input_layout>;

/// Returns the annotation that expresses the sharding of an input in a plan.
constexpr input_layout planned_layout(const plan_view& plan, const mesh_shape& mesh, int input) {
  input_layout l(mesh.axis_count(), -1);
  for (const auto& use : plan.value(plan.inputs[static_cast<std::size_t>(input)]).layout.splits) l[use.axis] = use.dim;
  return l;
}
/// Replaces empty annotations by the shardings of a plan.
constexpr group_layouts planned_layouts(const plan_view& plan, const mesh_shape& mesh, const constant_vector<input_group>& groups,
                                        group_layouts layouts) {
  for (std::size_t k = 0; k < groups.size(); ++k)
    if (layouts[k].empty()) layouts[k] = planned_layout(plan, mesh, groups[k].members.front());
  return layouts;
}
/// Returns the bytes of the shards of all inputs.
constexpr std::int64_t bytes_of_inputs(const plan_view& plan) {
  std::int64_t bytes = 0;
  for (const int i : plan.inputs) bytes += elements(plan.value(i).local) * bytes_of(plan.value(i).type);
  return bytes;
}

}  // namespace gspmd::detail
