// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

struct table_sizes {
  std::size_t nodes = 0, completed = 0, values = 0, steps = 0, slots = 0, bounds = 0, groups = 0, scalar_ops = 0, stores = 0,
              contractions = 0, reductions = 0, permutations = 0, windows = 0, inputs = 0, outputs = 0;
};

constexpr table_sizes sizes_of(const plan& p) {
  return {p.nodes.size(),      p.completed.size(),    p.values.size(),     p.steps.size(),  p.slots.size(),
          p.bounds.size(),     p.groups.size(),       p.scalar_ops.size(), p.stores.size(), p.contractions.size(),
          p.reductions.size(), p.permutations.size(), p.windows.size(),    p.inputs.size(), p.outputs.size()};
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

template <local_sizes Sizes>
struct constant_local_program {
  std::array<local_value, Sizes.values> values{};
  std::array<local_op, Sizes.ops> ops{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  std::array<int, Sizes.results> results{};

  constexpr explicit constant_local_program(const local_program& p) {
    for (std::size_t i = 0; i < Sizes.values; ++i) values[i] = p.values[i];
    for (std::size_t i = 0; i < Sizes.ops; ++i) ops[i] = p.ops[i];
    for (std::size_t i = 0; i < Sizes.inputs; ++i) inputs[i] = p.inputs[i];
    for (std::size_t i = 0; i < Sizes.outputs; ++i) outputs[i] = p.outputs[i];
    for (std::size_t i = 0; i < Sizes.results; ++i) results[i] = p.results[i];
  }
  [[nodiscard]] constexpr local_program thaw() const {
    local_program p;
    p.values.assign(values.begin(), values.end());
    p.ops.assign(ops.begin(), ops.end());
    p.inputs.assign(inputs.begin(), inputs.end());
    p.outputs.assign(outputs.begin(), outputs.end());
    p.results.assign(results.begin(), results.end());
    return p;
  }
};

/// The tables of a plan as a constant: what a static program keeps of it.
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
  std::array<planned_window, Sizes.windows> windows{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  std::array<int, Sizes.outputs> shared_inputs{};
  std::int64_t arena_bytes = 0;

  constexpr explicit constant_tables(const plan& p) : mesh(p.mesh), arena_bytes(p.arena_bytes) {
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
    fill(windows, p.windows);
    fill(inputs, p.inputs);
    fill(outputs, p.outputs);
    fill(shared_inputs, p.shared_inputs);
  }

 private:
  template <class Array, class Vector>
  static constexpr void fill(Array& to, const Vector& from) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i];
  }
};

}  // namespace gspmd::detail
