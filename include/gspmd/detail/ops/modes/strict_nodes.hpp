// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/modes/transition.hpp"
#include "gspmd/detail/support/span.hpp"

/// Nodes of programs that state each type (dynamic/strict_program.hpp).
namespace gspmd::detail {

/// Adds the position of a device along an axis, an s32 of rank 0.
constexpr int add_axis_index(graph& g, int axis, location at) {
  node n = source(code_of<transition_op>, dtype::s32, {}, at);
  state_change{transition_kind::reinterpret, axis_bit(axis), {state::constant}, {state::varying}}.keep(n);
  return g.add(n);
}

/// Adds a selection between values with one shape by a predicate, operand 0.
constexpr int add_choice(graph& g, span<const int> operands, location at) {
  const node& like = g.nodes[static_cast<std::size_t>(operands[1])];
  const int id = add_opaque(g, like.type, like.shape, operands, {partial_class::all, 1}, at);
  if (id >= 0) g.nodes[static_cast<std::size_t>(id)].attributes.push_back(1);
  return id;
}

}  // namespace gspmd::detail
