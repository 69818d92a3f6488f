// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ops/registry.hpp"

/// Classifies the operators of a local program. An operator that is neither virtual, lazy nor an alias is a step of
/// its own.
namespace gspmd::detail {

constexpr realisation realisation_of(const graph& g, const instruction& op) {
  return facts_of(g.nodes[static_cast<std::size_t>(op.node)].op).runs;
}
/// Returns true if an operator is never computed on its own if a loop can read it through strides.
constexpr bool is_virtual(const graph& g, const instruction& op) {
  return op.what == instruction_kind::compute && realisation_of(g, op) == realisation::strides;
}
/// Returns true if an operator waits until another operator needs its value.
constexpr bool is_lazy(const graph& g, const instruction& op) {
  const auto runs = realisation_of(g, op);
  return op.what == instruction_kind::compute && (runs == realisation::loop || runs == realisation::strides);
}
/// Returns true if the result of an operator is an alias of its operand's memory.
constexpr bool is_alias(const graph& g, const mesh_shape& mesh, const local_program& p, const instruction& op) {
  if (op.what == instruction_kind::slice) {  // the same shard under another sharding
    const auto& from = p.value(op.operands[0]);
    return same_data(mesh, from.global, from.layout, p.value(op.result).layout);
  }
  return op.what == instruction_kind::compute && op.movement < 0 && realisation_of(g, op) == realisation::alias;
}

}  // namespace gspmd::detail
