// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/extend/elementwise.hpp"
#include "gspmd/extend/pass.hpp"

// A pass outside of the library. It includes only public headers.
namespace new_pass {

using namespace gspmd::extend;

/// Returns true for 2^k with k from -10 to 10. The inverse of these numbers is exact in every floating type.
constexpr bool has_exact_inverse(double c) {
  return (std::bit_cast<std::uint64_t>(c) << 12U) == 0 && c >= 1.0 / 1024 && c <= 1024;
}

/// x / c  ->  x * (1 / c), if 1 / c is exact. A multiplication takes less time than a division, and the result has the
/// same bits.
struct exact_reciprocals : plain_pass {
  static constexpr const char* name = "exact reciprocals";
  static constexpr pass_position position = pass_position::in_order;

  static constexpr bool applies(const graph& g) { return !g.states_communication(); }
  static constexpr node_order run(graph& g) {
    node_order order = node_order::kept;
    for (int i = 0, count = static_cast<int>(g.nodes.size()); i < count; ++i) {
      node n = g.nodes[i];  // a copy: a new node moves the list
      if (n.op != code_of<divide_op> || !is_floating(n.type)) continue;
      node divisor = operand_of(g, n, 1);
      if (divisor.op != opcode::constant || !has_exact_inverse(divisor.real)) continue;
      divisor.real = 1 / divisor.real;
      n.op = code_of<multiply_op>;
      n.operands[1] = static_cast<int>(g.nodes.size());
      g.nodes[i] = n;
      g.nodes.push_back(divisor);  // after its user
      order = node_order::changed;
    }
    return order;
  }
};

}  // namespace new_pass
