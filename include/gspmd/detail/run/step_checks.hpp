// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/ir/same_tiles.hpp"
#include "gspmd/error.hpp"

/// The checks of the memory that a step gets. They are out of line and no templates, because a program has many
/// steps.
namespace gspmd::detail {

[[gnu::cold]] inline std::string leaf_text(const plan_view& plan, std::size_t leaf) {
  const auto inputs = plan.inputs.size();
  return leaf < inputs ? "step: input " + std::to_string(leaf) : "step: output " + std::to_string(leaf - inputs);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_no_memory(const plan_view& plan, std::size_t leaf) {
  throw error(leaf_text(plan, leaf) + " is given no memory: the pointer is null");
}

/// Throws unless the shards of a leaf (inputs, then outputs) are on `count` devices and have the layout of the plan.
[[gnu::noinline]] inline void check_shards(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, std::size_t count,
                                           int given_count, const planned_value& has, const mesh_shape& given_mesh) {
  const auto inputs = plan.inputs.size();
  const auto& wanted = plan.value(leaf < inputs ? plan.inputs[leaf] : plan.outputs[leaf - inputs]);
  if (given_count != static_cast<int>(count)) throw error(leaf_text(plan, leaf) + " is not on the devices of this communicator");
  if (&has == &wanted) return;
  if (!(has.global == wanted.global) || has.type != wanted.type || given_mesh.device_count() != plan.mesh->device_count())
    throw error(leaf_text(plan, leaf) + " is " + std::string(shape_text(wanted.global).view()) +
                " and the sharded_array given is " + std::string(shape_text(has.global).view()) +
                (has.global == wanted.global ? ", or of another type or mesh"
                                             : std::string(differing_dim_text(wanted.global, has.global).view())));
  if (!same_tiles(given_mesh, has.layout, *plan.mesh, wanted.layout, wanted.global.count))
    throw error(leaf_text(plan, leaf) + " is sharded " +
                std::string(sharding_text(mesh, wanted.layout, wanted.global.count).view()) + " and the sharded_array given is " +
                (same_mesh(given_mesh, mesh.shape)
                     ? "sharded " + std::string(sharding_text(mesh, has.layout, has.global.count).view()) +
                           "; give both the same annotation"
                     : "on another mesh of the devices; give both the same annotation, or convert it with to_step"));
}

[[noreturn, gnu::cold, gnu::noinline]] inline void throw_empty(const plan_view& plan, std::size_t leaf) {
  throw error(leaf_text(plan, leaf) +
              " is an empty sharded_array, never filled or moved from; make it with distribute or make_result");
}
[[noreturn, gnu::noinline]] inline void throw_several_devices(std::size_t count) {
  throw error("step: the communicator holds " + std::to_string(count) + " devices; give a sharded_array for every tensor");
}

}  // namespace gspmd::detail
