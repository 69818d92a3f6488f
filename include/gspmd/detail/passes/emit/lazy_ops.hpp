// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"

/// Which operators of a local program are steps of their own: those that are none of these.
namespace gspmd::detail {

constexpr realisation realisation_of(const graph& g, const instruction& op) {
  return facts_of(g.nodes[static_cast<std::size_t>(op.node)].op).runs;
}
/// Never computed on its own where a loop can read it through strides.
constexpr bool is_virtual(const graph& g, const instruction& op) {
  return op.what == instruction_kind::compute && realisation_of(g, op) == realisation::strides;
}
/// Waits until something else needs its value.
constexpr bool is_lazy(const graph& g, const instruction& op) {
  const auto runs = realisation_of(g, op);
  return op.what == instruction_kind::compute && (runs == realisation::loop || runs == realisation::strides);
}
/// Another name for the memory of its operand.
constexpr bool is_alias(const graph& g, const mesh_shape& mesh, const local_program& p, const instruction& op) {
  if (op.what == instruction_kind::slice) {  // the same shard under another name
    const auto& from = p.value(op.operands[0]);
    return same_data(mesh, from.global, from.layout, p.value(op.result).layout);
  }
  return op.what == instruction_kind::compute && op.movement < 0 && realisation_of(g, op) == realisation::alias;
}

}  // namespace gspmd::detail
