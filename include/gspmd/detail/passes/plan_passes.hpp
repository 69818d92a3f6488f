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

/// The error text for an operator that communicates on its operands although the user forbade it; empty if there is none.
constexpr text forbidden_reshard(const graph& g, const local_program& p) {
  for (const auto& op : p.ops) {
    if ((op.what != instruction_kind::move && op.what != instruction_kind::reduce) || op.for_output) continue;
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    if (!n.forbid_reshard) continue;
    const auto& from = p.value(op.operands[0]);
    const auto& to = p.value(op.result);
    text t;
    t << graph::place(n.at, name_of(n.op)) << ": ";
    for (int k = 0; k < n.operands.count; ++k) {
      if (n.operands[k] != from.node) continue;
      t << "operand " << k << " is sharded ";
      int dim = -1;
      for (int d = from.global.count - 1; d >= 0; --d)
        if (from.layout.axes_of(d) != to.layout.axes_of(d)) dim = d;
      t << sharding_text(*g.mesh, from.layout, from.global.count) << " and the operator needs "
        << sharding_text(*g.mesh, to.layout, to.global.count);
      if (dim >= 0) facts_of(n.op).name_dim(t, g, n, k, dim);
      break;
    }
    t << ": this takes " << name_of(op.collective) << " over `" << axes_text(*g.mesh, op.axes)
      << "`, which forbid_reshard does not allow; shard the operands alike, or reshard one yourself";
    return t;
  }
  return {};
}

/// The error text for an operator that gathers a value that is to stay split; empty if there is none.
constexpr text gathered_though_kept(const graph& g, const local_program& p) {
  const auto root_of = [&g](int i) {
    while (facts_of(g.nodes[static_cast<std::size_t>(i)].op).made == origin::renamed)
      i = g.nodes[static_cast<std::size_t>(i)].operands[0];
    return i;
  };
  for (const auto& op : p.ops) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    if (op.what != instruction_kind::move || op.for_output || facts_of(n.op).made == origin::renamed) continue;
    const auto& from = p.value(op.operands[0]);
    const auto& to = p.value(op.result);
    const axis_mask lost = from.layout.split_axes() & ~to.layout.split_axes();
    if (lost == 0) continue;
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      if (!g.nodes[static_cast<std::size_t>(o)].keep_split || root_of(o) != root_of(from.node)) continue;
      return text() << graph::place(n.at, name_of(n.op)) << ": operand " << k << " is sharded "
                    << sharding_text(*g.mesh, from.layout, from.global.count) << " and the operator needs "
                    << sharding_text(*g.mesh, to.layout, to.global.count) << ": this takes " << name_of(op.collective)
                    << " over `" << axes_text(*g.mesh, op.axes)
                    << "`, which keep_split does not allow; shard the operands alike, or reshard it "
                    << "yourself";
    }
  }
  return {};
}

/// The error text for an operator that cannot work on a split, so that its operand is gathered whole along an axis, and the user did not
/// allow it; empty if there is none.
constexpr text silent_replication(const graph& g, const local_program& p) {
  if (g.allow_replication) return {};
  for (const auto& op : p.ops) {
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    if (op.what != instruction_kind::move || !op.forced || n.allow_replication) continue;
    const auto& from = p.value(op.operands[0]);
    const auto& to = p.value(op.result);
    const axis_mask lost = from.layout.split_axes() & ~to.layout.split_axes();
    if (lost == 0) continue;
    const replication_words& words = facts_of(n.op).replication;
    text t;
    t << graph::place(n.at, words.who.empty() ? name_of(n.op) : words.who) << ": ";
    if (words.does.empty()) {
      for (int k = 0; k < n.operands.count; ++k) {
        if (n.operands[k] != from.node) continue;
        t << "operand " << k << ' ';
        break;
      }
    } else {
      t << words.does << ' ';
    }
    t << shape_text(from.global) << (words.does.empty() ? " is sharded " : ", which is sharded ")
      << sharding_text(*g.mesh, from.layout, from.global.count);
    if (words.does.empty()) t << " and the operator, with result " << shape_text(n.shape) << ", cannot work on that split";
    t << ": every device along `" << axes_text(*g.mesh, lost) << "` would hold "
      << sharding_text(*g.mesh, to.layout, to.global.count) << "; " << words.remedy;
    return t;
  }
  return {};
}

/// The error text for an einsum that would leave more of an operand on a device than its gather_limit allows, where no ring of devices
/// helps; empty if there is none.
constexpr text gathered_beyond_limit(const graph& g, const local_program& p) {
  for (const auto& op : p.ops) {
    if (op.what != instruction_kind::compute || !op.ring.beyond_limit) continue;
    const node& n = g.nodes[static_cast<std::size_t>(op.node)];
    int largest = op.ring.operand == 0 ? 1 : 0;
    const auto size = [&](int k) { return elements(p.value(op.operands[k]).local) * bytes_of(p.value(op.operands[k]).type); };
    if (op.ring.operand < 0 && size(1) > size(0)) largest = 1;
    const auto& v = p.value(op.operands[largest]);
    text t;
    t << graph::place(n.at, name_of(n.op)) << ": operand " << largest << ' ' << shape_text(v.global) << " would be gathered to "
      << sharding_text(*g.mesh, v.layout, v.global.count) << ", " << size(largest)
      << " bytes on every device, limit_gather allows " << n.gather_limit;
    t << "; shard the operands alike, or raise the limit";
    return t;
  }
  return {};
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

/// Notes in a plan what of a program is refused, if anything is.
constexpr void refuse_communication(const graph& g, const local_program& local, plan& result) {
  result.error = forbidden_reshard(g, local);
  if (result.error.empty()) result.error = gathered_though_kept(g, local);
  if (!result.error.empty()) {
    result.broken = mistake::communication;
    return;
  }
  result.error = silent_replication(g, local);
  if (!result.error.empty()) {
    result.broken = mistake::replication;
    return;
  }
  result.error = gathered_beyond_limit(g, local);
  if (!result.error.empty()) result.broken = mistake::gather_limit;
}

/// The steps of a plan, which lie nowhere yet; `base`: by value, the one whose memory it shares.
constexpr plan schedule_program(const graph& g, const mesh_shape& mesh, local_program local, vec<int>& base) {
  plan refused;
  refuse_communication(g, local, refused);
  if (refused.broken != mistake::none) return refused;
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
