// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>

#include "gspmd/detail/ir/cut_axis.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/rule.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/span.hpp"

/// Sub-axes. A reshape splits a dim into several dims. An axis that splits the dim may be too long for the first of
/// these dims; its rest then splits the next dim:
///
///   [8] over x:4 -> [2,4]      2 and 2: x is cut into x:(1)2 and x:(2)2, which split the two dims
///
/// So the mesh is refined if a program needs it, before the final planning; the planner itself has whole axes only.
/// The devices keep their order, and every text shows whole axes. Other programs are not affected.
///
/// If two cuts of an axis do not nest, as in [12] -> [2,6] and [12] -> [3,4] over x:6, they have no common refinement.
/// The first reshape gets its cut, 2 and 3. The other reshape gets the same tiles on other devices, [3,4] by the 3 and
/// the 2, and one collective_permute moves them.
namespace gspmd::detail {

constexpr axis_mask cut_axis(axis_mask axes, int axis) {
  const axis_mask below = axes & (axis_bit(axis) - 1);
  const axis_mask at = (axes & axis_bit(axis)) != 0 ? axis_bit(axis) | axis_bit(axis + 1) : 0;
  return below | at | (axes >> (axis + 1) << (axis + 1)) << 1;
}

constexpr annotation cut_axis(const annotation& s, int axis) {
  annotation result = s;
  result.layout.splits.clear();
  for (const auto& use : s.layout.splits) {
    result.layout.splits.push_back(axis_use{static_cast<std::int8_t>(use.axis > axis ? use.axis + 1 : use.axis), use.dim});
    if (use.axis == axis) result.layout.splits.push_back(axis_use{static_cast<std::int8_t>(axis + 1), use.dim});
  }
  for (axis_mask* const axes : {&result.layout.partial, &result.layout.varying, &result.closed}) *axes = cut_axis(*axes, axis);
  result.stages = 0;
  for (int a = 0; a + 1 < max_axes; ++a) {
    const auto stage = static_cast<std::uint64_t>(s.stage_of(a));
    result.stages |= stage << (4 * (a > axis ? a + 1 : a));
    if (a == axis) result.stages |= stage << (4 * (a + 1));
  }
  return result;
}

/// Rewrites the program for the mesh `refined`, which has one more axis.
constexpr void cut_axis(graph& g, const mesh_info& refined, int axis) {
  for (auto& n : g.nodes) {
    n.annotation = cut_axis(n.annotation, axis);
    for (axis_mask* const axes : {&n.local_axes, &n.hidden_axes}) *axes = cut_axis(*axes, axis);
  }
  g.mesh = &refined;
}

/// Returns the cut of an axis after which the splits of a tensor match the factors of its dims. If `may_round`,
/// returns no cut for a factor that can as well be split unevenly.
///
///   [8] over x:4, factors 2 and 4      x is cut at 2
constexpr axis_cut find_cut(const mesh_shape& mesh, const op_rule& rule, const tensor_map& map, const sharding& s,
                            const extents& shape, bool may_round) {
  for (int i = 0; i < s.splits.count;) {
    const int dim = s.splits[i].dim;
    const int begin = i;
    std::int64_t all_parts = 1;
    for (; i < s.splits.count && s.splits[i].dim == dim; ++i) all_parts *= mesh.sizes[s.splits[i].axis];
    int f = map.begin(dim);
    const int end = map.end(dim);
    if (end - f < 2 || shape[dim] % all_parts != 0) continue;
    std::int64_t parts = 1;
    for (int k = begin; k < i; ++k) {
      while (f < end && parts == rule.factors[map.factors[f]].size) {
        ++f;
        parts = 1;
      }
      if (f == end) break;
      const auto size = static_cast<std::int64_t>(mesh.sizes[s.splits[k].axis]);
      const auto left = rule.factors[map.factors[f]].size / parts;
      if (left % size == 0) {
        parts *= size;
        continue;
      }
      const auto outer = std::gcd(left, size);
      if (outer > 1) {
        std::int64_t below = 1, rest = 1;
        for (int g = f + 1; g < end; ++g) below *= rule.factors[map.factors[g]].size;
        for (int o = k; o < i; ++o) rest *= mesh.sizes[s.splits[o].axis];
        if (!may_round || !rounds_well(left, below, rest)) return {s.splits[k].axis, static_cast<std::int32_t>(outer)};
      }
      break;
    }
  }
  return {};
}

/// Returns true for an operator that keeps each shard in place, with another shape. Dims of its operand are products
/// of dims of its result, or the reverse. Then an axis may have to be cut.
constexpr bool divides_dims(const node& n) {
  return facts_of(n.op).made == origin::shards && facts_of(n.op).runs == realisation::alias;
}

/// Returns the first cut that a reshape of the program needs, for the shardings that completion would choose.
constexpr axis_cut find_cut(const graph& g, span<const sharding> completed) {
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    if (!divides_dims(n)) continue;
    const auto operand = static_cast<std::size_t>(n.operands[0]);
    if (completed[operand].splits.empty() && completed[i].splits.empty()) continue;
    op_rule rule;
    rule_of(g, n, rule);
    const auto find = [&](bool may_round) {
      auto cut = find_cut(g.mesh->shape, rule, rule.operand(0), completed[operand], g.nodes[operand].shape, may_round);
      if (cut.axis < 0) cut = find_cut(g.mesh->shape, rule, rule.result(), completed[i], n.shape, may_round);
      return cut;
    };
    auto cut = find(false);
    if (cut.axis >= 0 && may_be_moved(g, g.mesh->shape, n, completed[operand], completed[i])) cut = find(true);
    if (cut.axis >= 0 && can_cut(*g.mesh, cut)) return cut;
  }
  return {};
}

constexpr bool may_cut_axes(const auto& nodes) {
  for (const node& n : nodes)
    if (divides_dims(n)) return true;
  return false;
}

}  // namespace gspmd::detail
