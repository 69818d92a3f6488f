// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/complete/narrow.hpp"
#include "gspmd/detail/passes/emit/emit.hpp"
#include "gspmd/detail/passes/flops.hpp"
#include "gspmd/detail/passes/lower/schedule.hpp"
#include "gspmd/detail/passes/order/order_steps.hpp"
#include "gspmd/detail/passes/place/memory.hpp"
#include "gspmd/detail/support/span.hpp"

namespace gspmd::detail {

/// The lines of the program, with what each costs a device.
constexpr vec<planned_node> list_nodes(const graph& g, const mesh_shape& mesh, const local_program& local) {
  vec<planned_node> nodes;
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    planned_node line{in_words(n.op), n.at, local.results[i], 0, n.region, n.scope};
    line.may_differ = n.local_axes & ~n.equal_axes;
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

/// The steps of a plan, which lie nowhere yet; `base`: by value, the one whose memory it shares.
constexpr plan schedule_program(const graph& g, const mesh_shape& mesh, local_program local, vec<int>& base) {
  step_state state(g, mesh, std::move(local));
  scheduler(state).run();
  base = std::move(state.base);
  return std::move(state.out);
}

constexpr void place_in_memory(plan& p, vec<int> base) {
  memory_planner memory(p, std::move(base));
  memory.run();
}

/// Notes in every step over which axes devices communicate and how many messages one of them sends; the bytes are there already. Whoever
/// reads the plan, explain or a budget, reads these numbers and does not need what counts them.
constexpr void note_traffic(plan& p) {
  const plan_view view(p);
  for (auto& s : p.steps) {
    s.axes = facts_of(s).axes(view, s);
    s.messages = communicates(s) ? facts_of(s).messages(view, s) : 0;
  }
}

/// Whether a new order makes a plan better: less memory, and no output has lost the input whose memory it may be given.
constexpr bool is_smaller(const plan_view& ordered, const plan_view& as_it_was) {
  for (std::size_t k = 0; k < ordered.shared_inputs.size(); ++k)
    if (as_it_was.shared_inputs[k] >= 0 && ordered.shared_inputs[k] < 0) return false;
  return ordered.arena_bytes < as_it_was.arena_bytes;
}

}  // namespace gspmd::detail
