// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// The dims along which a value that is read through strides repeats what its operand has.
constexpr dim_mask repeated_dims(const graph& g, const node& x) {
  const auto& facts = facts_of(x.op);
  if (facts.runs != realisation::strides || x.operands.count != 1) return 0;
  dim_mask repeated = dim_bit(x.shape.count) - 1;
  for (const std::int8_t d : facts.lies_along(g, x))
    if (d >= 0) repeated &= ~dim_bit(d);
  return repeated;
}

/// Whether node `i` is a result of `op` (loop_result or cond_result) of the region that `start` opened.
constexpr bool is_result_of(const graph& g, int i, opcode op, int start) {
  if (i >= static_cast<int>(g.nodes.size())) return false;
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  if (n.op != op) return false;
  const int operand = n.operands[0];
  return op == opcode::loop_result ? g.nodes[static_cast<std::size_t>(operand)].region == start : operand == start;
}

/// The readers of the values of a program.
struct value_uses {
  vec<std::uint8_t> needed;  // by node: what no output depends on is not computed
  vec<vec<int>> readers;     // by node, the last one first; itself if it is an output
};

constexpr value_uses uses_of(const graph& g) {
  value_uses uses;
  uses.needed.resize(g.nodes.size(), 0);
  uses.readers.resize(g.nodes.size(), vec<int>{});
  std::uint8_t* const needed = uses.needed.data();
  vec<int>* const readers = uses.readers.data();
  const node* const nodes = g.nodes.data();
  for (const int o : g.outputs) {
    needed[o] = 1;
    readers[o].push_back(o);
  }
  for (int i = static_cast<int>(g.nodes.size()); i-- > 0;) {
    const node& n = nodes[i];
    if (g.has_regions && is_region_result(n.op)) {  // all results of a loop or conditional are computed if any of them is needed
      const int start = n.op == opcode::loop_result ? nodes[n.operands[0]].region : n.operands[0];
      bool any = false;
      if (!is_result_of(g, i + 1, n.op, start))
        for (int k = i; k >= 0 && is_result_of(g, k, n.op, start); --k) any = any || needed[k] != 0;
      for (int k = i; any && k >= 0 && is_result_of(g, k, n.op, start); --k) needed[k] = 1;
    }
    if (needed[i] == 0) continue;
    for (int r = 1; r < n.results; ++r) needed[i + r] = 1;  // they are made with it
    if (n.region >= 0) needed[n.region] = 1;
    if (facts_of(n.op).made == origin::result) {
      needed[n.operands[0]] = 1;
      continue;
    }
    const int count = facts_of(n.op).reads(n);
    for (int k = 0; k < count; ++k) {
      const int o = n.operands.items[k];
      needed[o] = 1;
      readers[o].push_back(i);
    }
  }
  return uses;
}

}  // namespace gspmd::detail
