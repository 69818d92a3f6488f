// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Returns the dims along which a value that is read through strides repeats its operand, as a broadcast does.
///
///   [8] broadcast to [4,8]: dim 0
constexpr dim_mask repeated_dims(const graph& g, const node& x) {
  const auto& facts = facts_of(x.op);
  if (facts.runs != realisation::strides || x.operands.count != 1) return 0;
  dim_mask repeated = dim_bit(x.shape.count) - 1;
  for (const std::int8_t d : facts.lies_along(g, x))
    if (d >= 0) repeated &= ~dim_bit(d);
  return repeated;
}

/// Returns true if node `i` is a result of the region that node `start` opened. `op` is loop_result or cond_result.
constexpr bool is_result_of(const graph& g, int i, const operator_code& op, int start) {
  if (i >= static_cast<int>(g.nodes.size())) return false;
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  if (n.op != op) return false;
  const int operand = n.operands[0];
  return op == opcode::loop_result ? g.nodes[static_cast<std::size_t>(operand)].region == start : operand == start;
}

/// The users of each value of a program.
struct value_uses {
  vec<std::uint8_t> needed;  // by node: an output depends on it; other nodes are not computed
  vec<int> first;            // by node, and one entry more: where its users begin in `reads`
  vec<int> reads;
  vec<std::uint8_t> in_memory;  // by node: values_in_memory

  /// Returns the users of node `i`, the last one first. If node `i` is an output, the list begins with `i` itself.
  [[nodiscard]] constexpr span<const int> readers(int i) const {
    return {reads.data() + first.data()[i], reads.data() + first.data()[i + 1]};
  }
  static constexpr auto lists(auto& s, auto f) { return f(s.needed, s.first, s.reads, s.in_memory); }
};

/// Returns true if users find the operator's result in its operand, or compute it themselves. Then the result need not
/// be in memory.
constexpr bool is_read_in_place(const node& n) {
  const auto& facts = facts_of(n.op);
  return facts.runs == realisation::loop || (facts.made == origin::shards && facts.movements(n) == 1);
}
/// Returns by node whether its value is written to memory and read from there. It is not if all its users are loops,
/// which fuse with the loop that makes it. It is not if its single user reduces it.
///
///   y = relu(x + b), output y: x + b is not in memory, y is
constexpr vec<std::uint8_t> values_in_memory(const graph& g, const value_uses& uses) {
  const node* const nodes = g.nodes.data();
  const int count = static_cast<int>(g.nodes.size());
  vec<std::uint8_t> in_memory(g.nodes.size(), 1);
  for (int i = count; i-- > 0;) {  // users first: a reshard shares the memory of its operand
    const auto& facts = facts_of(nodes[i].op);
    if (facts.runs == realisation::strides) in_memory[i] = 0;
    if (facts.runs == realisation::strides || !is_read_in_place(nodes[i])) continue;
    const auto readers = uses.readers(i);
    bool is_read = false;
    for (const int r : readers) {
      const auto& its = facts_of(nodes[r].op);
      const bool adds_up = its.runs == realisation::steps && nodes[r].operands.count == 1 && its.movements(nodes[r]) == 0;
      is_read = r == i || (its.runs != realisation::loop && (!adds_up || readers.size() > 1)) ||
                (its.made == origin::renamed && in_memory[r] != 0);
      if (is_read) break;
    }
    if (!is_read) in_memory[i] = 0;
  }
  return in_memory;
}

/// Returns the users of every value. Lists only users that an output needs.
///
///   y = f(x), z = g(x), outputs y and z: users of x: z, y; users of z: z
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
    if (g.has_regions && is_region_result(n.op)) {  // if one result of a loop or conditional is needed, all are computed
      const int start = n.op == opcode::loop_result ? nodes[n.operands[0]].region : n.operands[0];
      bool any = false;
      if (!is_result_of(g, i + 1, n.op, start))
        for (int k = i; k >= 0 && is_result_of(g, k, n.op, start); --k) any = any || needed[k] != 0;
      for (int k = i; any && k >= 0 && is_result_of(g, k, n.op, start); --k) needed[k] = 1;
    }
    if (needed[i] == 0) continue;
    for (int r = 1; r < n.results; ++r) needed[i + r] = 1;  // they are made together
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
  uses.in_memory = values_in_memory(g, uses);
  return uses;
}

}  // namespace gspmd::detail
