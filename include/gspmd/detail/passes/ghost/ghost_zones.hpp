// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/add_pass.hpp"
#include "gspmd/detail/passes/complete/complete.hpp"
#include "gspmd/detail/passes/ghost/add_rounds.hpp"
#include "gspmd/detail/passes/ghost/sweeps_at_once.hpp"
#include "gspmd/detail/support/precompiled.hpp"

/// Several sweeps of a stencil with one exchange (ghost zones, wide halos), if the user requests it for a loop
/// (ghost_sweeps). Devices recompute elements of their neighbours with the same operators and operands. So the results
/// equal the results of the plain loop bit for bit. The sharding is the one that completion finds for the plain loop.
namespace gspmd::detail {

constexpr bool asks_for_ghost_zones(const graph& g) {
  for (const auto& n : g.nodes)
    if (ghost_sweeps(n) != 1) return true;
  return false;
}

/// Returns the program with such loops in rounds, or with the recorded error.
constexpr graph with_ghost_zones(const graph& g, const vec<sharding>& layouts) {
  graph out = g.without_nodes();
  vec<int> number(g.nodes.size(), -1);  // by old node: the new node
  for (int i = 0; i < static_cast<int>(g.nodes.size());) {
    node n = g.nodes[i];
    const auto asked = ghost_sweeps(n);
    if (asked != 1) {
      if (n.local_axes != 0)
        out.fail(n.at, "fori_loop", mistake::region,
                 "a manual region makes one sweep on each exchange, and no ghost zones; write the loop outside of the region, or "
                 "without ghost");
      const ghost_sweep sweep(g, layouts, i, out);
      if (out.failed()) return out;
      const ghost_reach reach(sweep);
      const auto at_once = reach.dims.empty() ? 1 : asked < 0 ? fastest_sweeps(reach) : asked < n.integer ? asked : n.integer;
      if (at_once > 1) {
        ghost_rounds(reach, out, number).add(at_once);
        i = sweep.results.back() + 1;
        continue;
      }
    }
    for (auto& o : n.operands) o = number[o];
    n.region = n.region < 0 ? -1 : number[n.region];
    if (n.op == opcode::loop && !is_while(n)) n.attributes.clear();
    number[i++] = static_cast<int>(out.nodes.size());
    out.nodes.push_back(n);
  }
  for (const int i : g.inputs) out.inputs.push_back(number[i]);
  for (const int o : g.outputs) out.outputs.push_back(number[o]);
  for (const auto& also : g.also_tagged)
    if (number[also.node] >= 0) out.also_tagged.push_back({also.tag, number[also.node]});
  return out;
}

/// Plans the loops that request ghost zones in rounds of several sweeps.
struct ghost_zones_pass : plain_pass {
  static constexpr const char* name = "ghost zones";
  static constexpr pass_position position = pass_position::annotated;
  static constexpr bool applies(const graph& g) { return !g.is_explicit && asks_for_ghost_zones(g); }
  static constexpr node_order run(graph& g) {
    return g = with_ghost_zones(g, complete_graph(g, g.mesh->shape, g.mesh->request)), node_order::changed;
  }
};

}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/passes/ghost/ghost_zones_instances.ipp"
#endif
