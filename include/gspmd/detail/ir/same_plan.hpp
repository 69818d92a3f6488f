// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"

/// When two plans are one: every device runs the same steps on the same memory. Lines of the user's program do not count.
namespace gspmd::detail {

template <class T, class Same>
constexpr bool same_list(std::span<const T> a, std::span<const T> b, Same same) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

/// Numbers by their bits: 0 and -0.0 are two programs, and a NaN is equal to itself. Functions by identity.
constexpr bool same_scalar_op(const scalar_op& a, const scalar_op& b) {
  return a.op == b.op && a.type == b.type && a.operand_type == b.operand_type && a.args == b.args &&
         std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) && a.integer == b.integer &&
         a.slot == b.slot && a.dim == b.dim && a.strides == b.strides && a.function == b.function;
}

constexpr bool same_plan(const plan_view& a, const plan_view& b) {
  const auto equal = [](const auto& x, const auto& y) { return x == y; };
  const auto same_node = [](const planned_node& x, const planned_node& y) {
    return x.op == y.op && x.value == y.value && x.flops == y.flops;
  };
  return same_mesh(*a.mesh, *b.mesh) && same_list(a.nodes, b.nodes, same_node) && same_list(a.completed, b.completed, equal) &&
         same_list(a.values, b.values, equal) && same_list(a.steps, b.steps, equal) && same_list(a.slots, b.slots, equal) &&
         same_list(a.bounds, b.bounds, equal) && same_list(a.groups, b.groups, equal) &&
         same_list(a.scalar_ops, b.scalar_ops, same_scalar_op) && same_list(a.stores, b.stores, equal) &&
         same_list(a.contractions, b.contractions, equal) && same_list(a.reductions, b.reductions, equal) &&
         same_list(a.permutations, b.permutations, equal) && same_list(a.windows, b.windows, equal) &&
         same_list(a.maps, b.maps, equal) && same_list(a.inputs, b.inputs, equal) && same_list(a.outputs, b.outputs, equal) &&
         same_list(a.shared_inputs, b.shared_inputs, equal) && a.arena_bytes == b.arena_bytes;
}

}  // namespace gspmd::detail
