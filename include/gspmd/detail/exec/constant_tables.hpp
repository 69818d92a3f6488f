// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

struct table_sizes {
  std::size_t nodes = 0, completed = 0, values = 0, steps = 0, slots = 0, bounds = 0, groups = 0, scalar_ops = 0, stores = 0,
              contractions = 0, reductions = 0, permutations = 0, inputs = 0, outputs = 0;
};

constexpr table_sizes sizes_of(const plan& p) {
  return {p.nodes.size(),      p.completed.size(),    p.values.size(),     p.steps.size(),  p.slots.size(),
          p.bounds.size(),     p.groups.size(),       p.scalar_ops.size(), p.stores.size(), p.contractions.size(),
          p.reductions.size(), p.permutations.size(), p.inputs.size(),     p.outputs.size()};
}

/// A graph as a constant, between two evaluations.
struct graph_sizes {
  std::size_t nodes = 0, inputs = 0, outputs = 0;
};

template <graph_sizes Sizes>
struct constant_graph {
  std::array<node, Sizes.nodes> nodes{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  const mesh_info* mesh = nullptr;
  bool allow_replication = true;
  bool has_regions = false;

  constexpr explicit constant_graph(const graph& g)
      : mesh(g.mesh), allow_replication(g.allow_replication), has_regions(g.has_regions) {
    for (std::size_t i = 0; i < Sizes.nodes; ++i) nodes[i] = g.nodes[i];
    for (std::size_t i = 0; i < Sizes.inputs; ++i) inputs[i] = g.inputs[i];
    for (std::size_t i = 0; i < Sizes.outputs; ++i) outputs[i] = g.outputs[i];
  }
  [[nodiscard]] constexpr graph thaw() const {
    graph g;
    g.mesh = mesh;
    g.has_regions = has_regions;
    g.allow_replication = allow_replication;
    g.nodes.assign(nodes.begin(), nodes.end());
    g.inputs.assign(inputs.begin(), inputs.end());
    g.outputs.assign(outputs.begin(), outputs.end());
    return g;
  }
};

/// A local program as a constant, between two evaluations.
struct local_sizes {
  std::size_t values = 0, ops = 0, inputs = 0, outputs = 0, results = 0;
};
constexpr local_sizes sizes_of(const local_program& p) {
  return {p.values.size(), p.ops.size(), p.inputs.size(), p.outputs.size(), p.results.size()};
}

/// Room for the local program of so many nodes. Partitioning is far dearer than the room, and what does not fit is
/// partitioned a second time.
constexpr local_sizes room_for(graph_sizes g) {
  const std::size_t n = g.nodes + g.nodes / 4 + 16;
  return {n, n, g.inputs, g.outputs, g.nodes};
}

/// `Sizes` is the room there is; `used` says how much is needed.
template <local_sizes Sizes>
struct constant_local_program {
  local_sizes used;
  std::array<local_value, Sizes.values> values{};
  std::array<local_op, Sizes.ops> ops{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  std::array<int, Sizes.results> results{};

  constexpr explicit constant_local_program(const local_program& p) : used(sizes_of(p)) {
    if (!fits()) return;
    for (std::size_t i = 0; i < used.values; ++i) values[i] = p.values[i];
    for (std::size_t i = 0; i < used.ops; ++i) ops[i] = p.ops[i];
    for (std::size_t i = 0; i < used.inputs; ++i) inputs[i] = p.inputs[i];
    for (std::size_t i = 0; i < used.outputs; ++i) outputs[i] = p.outputs[i];
    for (std::size_t i = 0; i < used.results; ++i) results[i] = p.results[i];
  }
  [[nodiscard]] constexpr bool fits() const {
    return used.values <= Sizes.values && used.ops <= Sizes.ops && used.inputs <= Sizes.inputs && used.outputs <= Sizes.outputs &&
           used.results <= Sizes.results;
  }
  [[nodiscard]] constexpr local_program thaw() const {
    local_program p;
    p.values.assign(values.data(), values.data() + used.values);
    p.ops.assign(ops.data(), ops.data() + used.ops);
    p.inputs.assign(inputs.data(), inputs.data() + used.inputs);
    p.outputs.assign(outputs.data(), outputs.data() + used.outputs);
    p.results.assign(results.data(), results.data() + used.results);
    return p;
  }
};

/// Room for the tables of the plan of a local program; see room_for above.
template <class Graph, class Local>
constexpr table_sizes room_for_plan(const Graph& g, const Local& p) {
  std::size_t products = 0, others = 0;
  for (std::size_t i = 0; i < p.used.ops && i < p.ops.size(); ++i) {
    const local_op& o = p.ops[i];
    if (o.what != local_kind::compute) continue;
    const opcode what = g.nodes[static_cast<std::size_t>(o.node)].op;
    if (what == opcode::einsum && o.operands.count == 2) ++products;
    else if (what == opcode::einsum || what == opcode::reduce || what == opcode::transpose) ++others;
  }
  const std::size_t n = p.used.ops, steps = n / 2 + p.used.outputs + 8;
  return {g.nodes.size(),
          g.nodes.size(),
          p.used.values + p.used.outputs + others,
          steps,
          2 * n + p.used.outputs + 8,
          n / 2 + 8,
          n / 3 + 4,
          n + n / 3 + 8,
          n / 2 + p.used.outputs,
          products,
          others,
          others,
          p.used.inputs,
          p.used.outputs};
}
constexpr bool fits(const table_sizes& used, const table_sizes& room) {
  return used.nodes <= room.nodes && used.completed <= room.completed && used.values <= room.values && used.steps <= room.steps &&
         used.slots <= room.slots && used.bounds <= room.bounds && used.groups <= room.groups &&
         used.scalar_ops <= room.scalar_ops && used.stores <= room.stores && used.contractions <= room.contractions &&
         used.reductions <= room.reductions && used.permutations <= room.permutations && used.inputs <= room.inputs &&
         used.outputs <= room.outputs;
}

/// The tables of a plan as a constant: what a static program keeps of it. From a plan, or cut from tables with more room; of what
/// does not fit the rest is left out.
template <table_sizes Sizes>
struct constant_tables {
  mesh_shape mesh;
  std::array<planned_node, Sizes.nodes> nodes{};
  std::array<sharding, Sizes.completed> completed{};
  std::array<planned_value, Sizes.values> values{};
  std::array<plan_step, Sizes.steps> steps{};
  std::array<int, Sizes.slots> slots{};
  std::array<bound, Sizes.bounds> bounds{};
  std::array<planned_group, Sizes.groups> groups{};
  std::array<scalar_op, Sizes.scalar_ops> scalar_ops{};
  std::array<fused_store, Sizes.stores> stores{};
  std::array<contraction_plan, Sizes.contractions> contractions{};
  std::array<reduction_spec, Sizes.reductions> reductions{};
  std::array<permutation_spec, Sizes.permutations> permutations{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  std::array<int, Sizes.outputs> shared_inputs{};
  std::int64_t arena_bytes = 0;

  template <class Tables>
  constexpr explicit constant_tables(const Tables& p) : mesh(p.mesh), arena_bytes(p.arena_bytes) {
    fill(nodes, p.nodes);
    fill(completed, p.completed);
    fill(values, p.values);
    fill(steps, p.steps);
    fill(slots, p.slots);
    fill(bounds, p.bounds);
    fill(groups, p.groups);
    fill(scalar_ops, p.scalar_ops);
    fill(stores, p.stores);
    fill(contractions, p.contractions);
    fill(reductions, p.reductions);
    fill(permutations, p.permutations);
    fill(inputs, p.inputs);
    fill(outputs, p.outputs);
    fill(shared_inputs, p.shared_inputs);
  }

 private:
  template <class Array, class Vector>
  static constexpr void fill(Array& to, const Vector& from) {
    for (std::size_t i = 0; i < from.size() && i < to.size(); ++i) to[i] = from[i];
  }
};

}  // namespace gspmd::detail
