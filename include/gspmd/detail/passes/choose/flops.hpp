// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/local_program.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// The arithmetic of every line of the program on the device that has most of it, shards counted with their padding: what its
/// operators state of themselves. Data that only moves, and what collectives add up on the way, counts nothing.
constexpr void count_flops(const graph& g, const mesh_shape& mesh, const local_program& p, span<planned_node> nodes) {
  for (const auto& op : p.ops) {
    if (op.what != instruction_kind::compute) continue;
    auto& total = nodes[static_cast<std::size_t>(op.node)].flops;
    total = saturating_add(total, facts_of(g.nodes[static_cast<std::size_t>(op.node)].op).flops(g, mesh, p, op));
  }
}

/// The lines of the program, with what each costs a device.
constexpr vec<planned_node> list_nodes(const graph& g, const mesh_shape& mesh, const local_program& local) {
  vec<planned_node> nodes;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    planned_node line{in_words(n.op), n.at, local.results[i], 0, n.region, n.scope};
    line.may_differ = n.annotation.layout.varying;
    if (facts_of(n.op).movements(n) == 1) {
      const index_map map = facts_of(n.op).map(g, n, 0);
      if (moves_all_alike(map)) {
        line.moved_dim = map.dims[0].dim;
        line.moved_by = offset_of(map.dims[0], n.shape[line.moved_dim]);
      }
    }
    line.is_started = n.is_started;
    nodes.push_back(line);
  }
  count_flops(g, mesh, local, nodes);
  for (auto& n : nodes)
    for (int r = n.region; r >= 0; r = nodes[static_cast<std::size_t>(r)].region)
      if (const node& start = g.nodes[static_cast<std::size_t>(r)]; start.op == opcode::loop)
        n.flops = saturating_multiply(n.flops, start.integer);
  return nodes;
}

}  // namespace gspmd::detail
