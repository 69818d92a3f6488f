// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/span.hpp"
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
  vec<int> first;            // by node, and of one more: where its readers begin in `reads`
  vec<int> reads;

  /// The last one first; itself, before them, if it is an output.
  [[nodiscard]] constexpr span<const int> readers(int i) const {
    return {reads.data() + first.data()[i], reads.data() + first.data()[i + 1]};
  }
  static constexpr auto lists(auto& s, auto f) { return f(s.needed, s.first, s.reads); }
  static constexpr auto rest(auto&, auto f) { return f(); }
};

constexpr value_uses uses_of(const graph& g) {
  struct read {
    int of, by;
  };
  const auto count = g.nodes.size();
  value_uses uses;
  vec<read> found;
  uses.needed.resize(count, 0);
  uses.first.resize(count + 1, 0);
  std::uint8_t* const needed = uses.needed.data();
  int* const first = uses.first.data();
  const node* const nodes = g.nodes.data();
  const auto note = [&](int of, int by) {
    needed[of] = 1;
    ++first[of + 1];
    found.push_back({of, by});
  };
  for (const int o : g.outputs) note(o, o);
  for (int i = static_cast<int>(count); i-- > 0;) {
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
    const int read_count = facts_of(n.op).reads(n);
    for (int k = 0; k < read_count; ++k) note(n.operands.items[k], i);
  }
  for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
  uses.reads.resize(found.size(), 0);
  vec<int> next = uses.first;
  for (const auto& r : found) uses.reads.data()[next.data()[r.of]++] = r.by;
  return uses;
}

}  // namespace gspmd::detail
