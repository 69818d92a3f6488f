// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/sources.hpp"

namespace gspmd::detail {

/// Returns true if all elements of a value are one number, positive and finite.
constexpr bool is_positive_number(const graph& g, int i) {
  const node* n = &g.nodes[static_cast<std::size_t>(i)];
  if (n->op != opcode::constant && n->operands.count == 1 && n->op == code_of<broadcast_op>)
    n = &g.nodes[static_cast<std::size_t>(n->operands[0])];
  return n->op == opcode::constant && is_floating(n->type) && n->real > 0 && n->real <= 1e300;
}

}  // namespace gspmd::detail
