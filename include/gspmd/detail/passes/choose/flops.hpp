// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/passes/choose/operator_work.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// Returns the axes that split each factor of an operator's rule, read from the layouts of its operands and result.
/// Skips an operand that rotates around a ring, because the other tensors determine the uses.
constexpr factor_splits uses_in(const mesh_shape& mesh, const local_program& p, const instruction& op, const op_rule& rule) {
  factor_splits uses;
  for (int k = 0; k <= op.operands.count; ++k) {
    const bool is_result = k == op.operands.count;
    if (k == op.ring.operand) continue;
    const auto& splits = p.value(is_result ? op.result : op.operands[k]).layout.splits;
    for (const auto& use : to_factors(mesh, rule, is_result ? rule.result() : rule.operand(k), splits)) {
      bool is_known = false;
      for (const auto& known : uses) is_known = is_known || known.axis == use.axis;
      if (!is_known) add_factor_split(uses, use.axis, use.dim);
    }
  }
  return uses;
}

/// Adds the flops and the work of each operator to the line of its node, for the device that has the most. Shards count
/// with their padding. The flops are a fact of the operator. Movements, and reductions inside collectives, count no
/// flops.
constexpr void count_flops(const graph& g, const mesh_shape& mesh, const value_uses& uses, const local_program& p,
                           span<planned_node> nodes) {
  for (const auto& op : p.ops) {
    if (op.what != instruction_kind::compute) continue;
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    auto& line = nodes[static_cast<std::size_t>(op.node)];
    const auto flops = facts_of(n.op).flops(g, mesh, p, op);
    operator_work work{flops, 0};
    if (const auto& facts = facts_of(n.op);
        facts.uniform || n.operands.count <= 1) {  // equal to the other branch, without the rule
      const auto bytes = works(facts) ? moved_bytes(g, uses, op.node) : bytes_by_tensor();
      for (int t = 0; t < bytes.count; ++t)
        work.bytes += bytes[t] * elements(p.value(t < op.operands.count ? op.operands[t] : op.result).local);
    } else {
      op_rule rule;
      rule_of(g, n, rule);
      const work_counter counter(g, mesh, uses, op.node, rule);
      const auto counted = counter.of(uses_in(mesh, p, op, rule));
      work = counter.is_product() ? counted : operator_work{flops, counted.bytes};
    }
    line.flops = saturating_add(line.flops, flops);
    line.work.flops = saturating_add(line.work.flops, work.flops);
    line.work.bytes = saturating_add(line.work.bytes, work.bytes);
  }
}

/// Returns the lines of the program with their costs on one device. The lines in a loop count all iterations.
constexpr vec<planned_node> list_nodes(const graph& g, const mesh_shape& mesh, const value_uses& uses,
                                       const local_program& local) {
  vec<planned_node> nodes;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    planned_node line{in_words(n.op), n.at, local.results[i], 0, {}, n.region, n.scope};
    line.may_differ = n.annotation.layout.varying;
    if (facts_of(n.op).movements(n) == 1) {
      const index_map map = facts_of(n.op).map(g, n, 0);
      if (moves_all_alike(map)) {
        line.moved_dim = map.dims[0].dim;
        line.moved_by = offset_of(map.dims[0], n.shape[line.moved_dim]);
      }
    }
    line.is_started = n.is_started;
    line.gradient_of = n.gradient_of;
    nodes.push_back(line);
  }
  count_flops(g, mesh, uses, local, nodes);
  for (auto& n : nodes)
    for (int r = n.region; r >= 0; r = nodes[static_cast<std::size_t>(r)].region)
      if (const node& start = g.nodes[static_cast<std::size_t>(r)]; start.op == opcode::loop)
        for (auto* const of : {&n.flops, &n.work.flops, &n.work.bytes}) *of = saturating_multiply(*of, start.integer);
  return nodes;
}

}  // namespace gspmd::detail
