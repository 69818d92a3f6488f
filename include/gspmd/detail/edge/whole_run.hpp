// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/driver/given_arguments.hpp"
#include "gspmd/detail/edge/distribute.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/run/bound_devices.hpp"
#include "gspmd/detail/transport/communicator.hpp"
#include "gspmd/detail/transport/device_memory.hpp"
#include "gspmd/error.hpp"
#include "gspmd/program/row_major.hpp"

/// Runs of a program on whole arrays, for compiled programs and for programs planned at run time.
namespace gspmd::detail {

/// Collects the leaves of the arguments of `run` as pointers to whole arrays. Checks their number, element types and
/// shapes against the inputs.
class whole_inputs {
 public:
  template <class... Arguments>
  explicit whole_inputs(const plan_view& plan, const Arguments&... arguments) : plan_(plan) {
    (for_each_leaf(arguments, [&](const auto& leaf) { add(leaf); }), ...);
    if (pointers.size() != plan.inputs.size()) throw count_error(plan, "run", 0, plan.inputs.size(), pointers.size());
  }
  std::vector<const void*> pointers;

 private:
  template <class Leaf>
  void add(const Leaf& leaf) {
    const auto k = pointers.size();
    if constexpr (std::rank_v<Leaf> > 1) {
      check_shape(k, extents_of_array<Leaf>());
      add(flat_array<Leaf>{leaf});
    } else if constexpr (requires {
                           *std::data(leaf);
                           std::size(leaf);
                         }) {
      require_dense(leaf);
      check_type<leaf_element_t<Leaf>>(k);
      if (k < plan_.inputs.size()) {
        const auto& shape = plan_.value(plan_.inputs[k]).global;
        if constexpr (requires { leaf.shape().count; }) check_shape(k, leaf.shape());
        if (static_cast<std::int64_t>(std::size(leaf)) != elements(shape))
          throw error("run: input " + std::to_string(k) + " is " + std::string(shape_text(shape).view()) + " with " +
                      std::to_string(elements(shape)) + " elements and the array given has " + std::to_string(std::size(leaf)));
      }
      add_pointer(std::data(leaf));
    } else if constexpr (std::is_pointer_v<Leaf>) {
      check_type<leaf_element_t<Leaf>>(k);
      add_pointer(leaf);
    } else {
      static_assert(is_external_view<Leaf> || !has_addresses<Leaf>,  // both are reported by accept_container
                    "gspmd: run: give arrays, contiguous ranges, pointers, or structs of arrays, ranges and pointers");
    }
  }
  void check_shape(std::size_t k, const extents& given) const {
    if (k >= plan_.inputs.size()) return;
    if (const extents& shape = plan_.value(plan_.inputs[k]).global; !(shape == given))
      throw error(
          std::string((text("run: input ") << static_cast<std::int64_t>(k) << " is " << shape_text(shape)
                                           << " and the array given is " << shape_text(given) << differing_dim_text(shape, given))
                          .view()));
  }
  template <class Array>
  static extents extents_of_array() {
    return []<std::size_t... D>(std::index_sequence<D...>) {
      extents shape;
      (shape.push_back(static_cast<std::int64_t>(std::extent_v<Array, D>)), ...);
      return shape;
    }(std::make_index_sequence<std::rank_v<Array>>{});
  }
  void add_pointer(const void* leaf) {
    const auto k = pointers.size();
    if (leaf == nullptr && k < plan_.inputs.size() && elements(plan_.value(plan_.inputs[k]).global) > 0)
      throw error("run: input " + std::to_string(k) + " is given no memory: the pointer is null");
    pointers.push_back(leaf);
  }
  template <class T>
  void check_type(std::size_t k) const {
    if (k < plan_.inputs.size() && plan_.value(plan_.inputs[k]).type != dtype_of<T>())
      throw type_error(plan_, "run", k, dtype_of<T>());
  }

  const plan_view& plan_;
};

constexpr bool has_partial_outputs(const plan_view& plan) {
  for (const int o : plan.outputs)
    if (plan.value(o).layout.partial != 0) return true;
  return false;
}

/// Runs a planned program once on the devices of `comm`, from whole arrays to whole arrays. `inputs` are pointers, or
/// other arguments of cut_shard. `run(comm, inputs, outputs)` runs the program on shards.
/// If `MayBePartial` is true, partial outputs are reduced first.
template <bool MayBePartial, class Comm, class Whole, class Run>
void run_whole(const plan_view& plan, Comm& comm, const Whole* inputs, void* const* outputs, Run&& run) {
  require_devices(comm, static_cast<int>(plan.mesh->device_count()));
  const auto count = static_cast<std::size_t>(comm.local_count());
  std::vector<aligned_bytes> memory;
  std::vector<const void*> in;
  std::vector<void*> out;
  const auto shard_bytes = [](const planned_value& v) { return elements(v.local) * bytes_of(v.type); };
  for (std::size_t d = 0; d < count; ++d) {
    const int device = comm.device(static_cast<int>(d));
    const auto at = plan.mesh->coordinates_of(device);
    const auto take = [&](const planned_value& v, const char* what) {
      taken_for(plan, device, [&] { memory.emplace_back(shard_bytes(v), what); });
    };
    for (std::size_t k = 0; k < plan.inputs.size(); ++k) {
      const auto& v = plan.value(plan.inputs[k]);
      take(v, "a shard of an input");
      cut_shard(*plan.mesh, v, at, inputs[k], memory.back().get());
      in.push_back(memory.back().get());
    }
    for (const int o : plan.outputs) {
      take(plan.value(o), "a shard of an output");
      out.push_back(memory.back().get());
    }
  }
  run(comm, in.data(), out.data());
  for (std::size_t k = 0; k < plan.outputs.size(); ++k) {
    std::vector<const void*> shards;
    for (std::size_t d = 0; d < count; ++d) shards.push_back(out[d * plan.outputs.size() + k]);
    if constexpr (MayBePartial) {
      planned_value v = plan.value(plan.outputs[k]);
      std::vector<aligned_bytes> sums;
      if (v.layout.partial != 0) sums = reduce_terms(comm, *plan.mesh, v, shards);
      join_shards(comm, *plan.mesh, v, shards.data(), outputs[k]);
    } else {
      join_shards(comm, *plan.mesh, plan.value(plan.outputs[k]), shards.data(), outputs[k]);
    }
  }
}

}  // namespace gspmd::detail
