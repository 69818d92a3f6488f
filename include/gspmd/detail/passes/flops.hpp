// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/einsum.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

/// The arithmetic of one local operator on the device that has most of it (shards are counted with their padding):
///   einsum of two operands     2 for every combination of local indices: a multiplication and an addition
///   einsum of one, reduce      1 for every element of the operand; none if nothing is summed
///   elementwise, map           1 for every element of the result, whatever the function
///   local_op                   what it states, 1 if nothing, for every combination of the local indices of all letters
///   everything else            0: data that only moves, and what collectives add up on the way
constexpr std::int64_t flops_of(const graph& g, const mesh_shape& mesh, const local_program& p, const local_op& op) {
  if (op.what != local_kind::compute) return 0;
  const node& n = g.nodes[static_cast<std::size_t>(op.node)];
  if (is_elementwise(n.op)) return saturating_elements(p.value(op.result).local);
  if (n.op == opcode::local_op) {
    std::int64_t total = n.local->flops;
    const local_rule& rule = n.local->rule;
    for (int l = 0; l < rule.letters.count; ++l) {
      std::int64_t extent = 1;
      for (int k = 0; k < rule.tensors.count; ++k)
        for (int d = 0; d < rule.tensors[k].count; ++d)
          if (rule.tensors[k][d] == l) extent = p.value(k < op.operands.count ? op.operands[k] : op.result).local[d];
      total = saturating_multiply(total, extent);
    }
    return total;
  }
  if (n.op != opcode::einsum && n.op != opcode::reduce) return 0;
  const auto& first = p.value(op.operands[0]).local;
  if (n.operands.count == 1) return first.count == p.value(op.result).local.count ? 0 : saturating_elements(first);
  const auto lhs = letters_of(g, n, 0);
  const auto rhs = letters_of(g, n, 1);
  const auto extent = [&](int k, int d) {
    const auto& v = p.value(op.operands[k]);
    if (k != op.window.operand || d != op.window.dim) return v.local[d];
    std::int64_t parts = 1;  // the shards that go round, all together
    for (const auto& use : v.layout.splits)
      if (use.dim == d && (ring_of(op.window, v.layout).mask() & axis_bit(use.axis)) == 0) parts *= mesh.sizes[use.axis];
    return shard_extent(v.global[d], parts);
  };
  std::int64_t total = 2;
  for (int d = 0; d < lhs.count; ++d) total = saturating_multiply(total, extent(0, d));
  for (int d = 0; d < rhs.count; ++d)
    if (lhs.find(rhs[d]) < 0) total = saturating_multiply(total, extent(1, d));
  return total;
}

constexpr void count_flops(const graph& g, const mesh_shape& mesh, const local_program& p, std::span<planned_node> nodes) {
  for (const auto& op : p.ops) {
    auto& total = nodes[static_cast<std::size_t>(op.node)].flops;
    total = saturating_add(total, flops_of(g, mesh, p, op));
  }
}

}  // namespace gspmd::detail
