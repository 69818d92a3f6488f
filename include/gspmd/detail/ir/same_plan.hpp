// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"

/// When two plans are one: every device runs the same steps on the same memory. Lines of the user's program do not count.
namespace gspmd::detail {

template <class List, class Same>
constexpr bool same_list(const List& a, const List& b, Same same) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

constexpr bool same_plan(const plan_view& a, const plan_view& b) {
  const auto equal = [](const auto& x, const auto& y) { return x == y; };
  const auto same_node = [](const planned_node& x, const planned_node& y) {
    return x.op == y.op && x.value == y.value && x.flops == y.flops;
  };
  return same_mesh(*a.mesh, *b.mesh) && same_list(a.nodes, b.nodes, same_node) && same_list(a.completed, b.completed, equal) &&
         same_list(a.values, b.values, equal) && same_list(a.steps, b.steps, equal) && same_list(a.slots, b.slots, equal) &&
         same_list(a.bounds, b.bounds, equal) && same_list(a.inputs, b.inputs, equal) && same_list(a.outputs, b.outputs, equal) &&
         same_list(a.shared_inputs, b.shared_inputs, equal) && a.arena_bytes == b.arena_bytes &&
         same_tables(kernel_tables{}, a, b, [&](const auto& x, const auto& y) { return same_list(x, y, equal); });
}

}  // namespace gspmd::detail
