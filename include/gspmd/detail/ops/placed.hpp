// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/mapped.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Adds a permutation of the indices of `dim`: index i of the result is index from[i] of the operand, or zeros if
/// from[i] is below 0. Each index occurs at most once. There are at most max_placed indices.
constexpr int add_placed(graph& g, int operand, span<const std::int8_t> from, int dim, location at);

/// Exchanges whole parts of a dim between devices, by a list. The list is a permutation of the parts and may omit
/// parts.
///
/// **Shapes.** x -> the shape of x. **Splits.** Every dim may be split. If the permuted dim is split, devices send
/// whole parts.
struct placed_op : plain_operator, same_dims, reads_shards, without_arithmetic, outside_of_loops, dims_by_number, linear_in_all {
  static constexpr const char* name = "permute";
  static constexpr leading_dim leading{.count = 1};
  static constexpr origin made = origin::shards;
  static constexpr realisation runs = realisation::steps;
  static constexpr completion_rounds completes{.forward = 0, .backward = 0};
  static constexpr bool composes = false;
  static constexpr int movements(const node&) { return 1; }
  static constexpr index_map map(const graph&, const node& n, int) {
    index_map map;
    map.placed_dim = static_cast<std::int8_t>(attribute_dim(n, 0));
    for (int i = 1; i < n.attributes.count; ++i) map.placed.push_back(static_cast<std::int8_t>(attribute_dim(n, i)));
    return map;
  }
  /// Moves each index back.
  template <class Builder>
  static constexpr void gradient(Builder& b, const node& n) {
    const index_map there = map(b.program(), n, 0);
    inline_vec<std::int8_t, max_placed> back(there.placed.count, -1);
    for (int i = 0; i < there.placed.count; ++i)
      if (there.placed[i] >= 0) back[there.placed[i]] = static_cast<std::int8_t>(i);
    b.send(0, add_placed(b.program(), b.dy().id(), {back.begin(), static_cast<std::size_t>(back.count)}, there.placed_dim, n.at));
  }
  template <class Lowering>
  static constexpr void lower(Lowering& l, const instruction& op) {
    l.move(op);
  }
  static void describe(std::string& t, const plan_view& plan, const plan_step* step) {
    if (step == nullptr) return;
    const auto& map = map_of(plan, *step);
    t += "(dim " + std::to_string(map.placed_dim) + ':';
    for (int i = 0; i < map.placed.count; ++i)
      if (map.placed[i] >= 0) t += ' ' + std::to_string(map.placed[i]) + "->" + std::to_string(i);
    t += ')';
  }
};

constexpr int add_placed(graph& g, int operand, span<const std::int8_t> from, int dim, location at) {
  if (operand < 0) return -1;
  const node& x = g.nodes[static_cast<std::size_t>(operand)];
  node n = source(code_of<placed_op>, x.type, x.shape, at);
  n.operands.push_back(operand);
  add_attributes(n, dim);
  for (const auto i : from) add_attributes(n, i);
  return g.add(n);
}

}  // namespace gspmd::detail
