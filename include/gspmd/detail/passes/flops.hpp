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

}  // namespace gspmd::detail
