// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

struct table_sizes {
  std::size_t nodes = 0, completed = 0, values = 0, steps = 0, slots = 0, bounds = 0, inputs = 0, outputs = 0;
  sizes_of_tables<kernel_tables> kernels;
};

constexpr table_sizes sizes_of(const plan& p) {
  return {p.nodes.size(),  p.completed.size(), p.values.size(),
          p.steps.size(),  p.slots.size(),     p.bounds.size(),
          p.inputs.size(), p.outputs.size(),   sizes_of_tables<kernel_tables>::of(p)};
}

constexpr bool fits(const table_sizes& s, const table_sizes& room) {
  return s.nodes <= room.nodes && s.completed <= room.completed && s.values <= room.values && s.steps <= room.steps &&
         s.slots <= room.slots && s.bounds <= room.bounds && s.inputs <= room.inputs && s.outputs <= room.outputs &&
         s.kernels.fit(room.kernels);
}

/// A guess that holds for most programs: equal steps share what is large. One that does not costs a second evaluation.
constexpr table_sizes guess_sizes(std::size_t nodes, std::size_t values, std::size_t ops, std::size_t movements) {
  table_sizes s;
  s.nodes = s.completed = nodes;
  s.values = values + values / 4 + 8;
  s.steps = s.inputs = s.outputs = ops + 8;
  s.slots = 3 * ops + 16;
  s.bounds = ops + 16;
  s.kernels = sizes_of_tables<kernel_tables>::guess(ops, movements);
  return s;
}

/// The tables of a plan as a constant: what a static program keeps of it. What exceeds `Sizes` is left out, and `fits()` says
/// so: the first evaluation guesses.
template <table_sizes Sizes>
struct constant_tables : constant_tables_of<kernel_tables, Sizes.kernels> {
  mesh_shape mesh;
  std::array<planned_node, Sizes.nodes> nodes{};
  std::array<sharding, Sizes.completed> completed{};
  std::array<planned_value, Sizes.values> values{};
  std::array<plan_step, Sizes.steps> steps{};
  std::array<int, Sizes.slots> slots{};
  std::array<bound, Sizes.bounds> bounds{};
  std::array<int, Sizes.inputs> inputs{};
  std::array<int, Sizes.outputs> outputs{};
  std::array<int, Sizes.outputs> shared_inputs{};
  std::int64_t arena_bytes = 0;

  template <class Plan>  // or tables with more room
  constexpr explicit constant_tables(const Plan& p) : mesh(p.mesh), arena_bytes(p.arena_bytes) {
    fill_table(nodes, p.nodes);
    fill_table(completed, p.completed);
    fill_table(values, p.values);
    fill_table(steps, p.steps);
    fill_table(slots, p.slots);
    fill_table(bounds, p.bounds);
    fill_table(inputs, p.inputs);
    fill_table(outputs, p.outputs);
    fill_table(shared_inputs, p.shared_inputs);
    constant_tables_of<kernel_tables, Sizes.kernels>::fill_tables(p);
  }

  /// Of tables with room: the steps, so many, with what they refer to.
  [[nodiscard]] constexpr plan_view steps_view(const table_sizes& s) const {
    plan_view view(*this);
    view.steps = view.steps.first(s.steps);
    view.inputs = view.inputs.first(s.inputs);
    view.outputs = view.outputs.first(s.outputs);
    return view;
  }
  /// Of tables with room: a plan of so many entries.
  [[nodiscard]] constexpr plan thaw(const table_sizes& s) const {
    plan p;
    p.mesh = mesh;
    p.arena_bytes = arena_bytes;
    p.nodes.assign(nodes.data(), nodes.data() + s.nodes);
    p.completed.assign(completed.data(), completed.data() + s.completed);
    p.values.assign(values.data(), values.data() + s.values);
    p.steps.assign(steps.data(), steps.data() + s.steps);
    p.slots.assign(slots.data(), slots.data() + s.slots);
    p.bounds.assign(bounds.data(), bounds.data() + s.bounds);
    p.inputs.assign(inputs.data(), inputs.data() + s.inputs);
    p.outputs.assign(outputs.data(), outputs.data() + s.outputs);
    constant_tables_of<kernel_tables, Sizes.kernels>::thaw_tables(p, s.kernels);
    return p;
  }
};

}  // namespace gspmd::detail
