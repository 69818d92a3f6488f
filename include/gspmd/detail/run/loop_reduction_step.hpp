// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/kernels/computed_reduction.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"

/// Loops that reduce their results, as steps of a plan.
namespace gspmd::detail {

inline table_view<loop_reduction> reductions_of(const plan_view& plan, const plan_step& s) {
  const auto& reductions = group_of_step(plan, s).reductions;
  return {table_of<loop_reduction>(plan).data() + reductions.begin, static_cast<std::size_t>(reductions.count)};
}

/// A function that computes elements [first, last) of a loop, in row-major order, into these outputs. `loop` is
/// passed through to the function.
struct element_range_function {
  void (*run)(void* loop, std::int64_t first, std::int64_t last, void* const* outputs);
  void* loop;
  /// Reduces the elements while it computes them, see computed_elements. Null if no such function exists.
  void (*accumulate)(void* loop, std::int64_t first, std::int64_t last, partial_reductions& partial) = nullptr;
  std::int64_t accumulated_unit = 1;
};

/// Reduces the results of a step's loop. `loop` is the part of the loop that exists on the device. `unit`: see
/// computed_elements. `outputs` are the step's results.
template <class Part = void>
[[gnu::noinline]] void run_loop_reductions(const plan_view& plan, const plan_step& s, const device_memory& device,
                                           const extents& loop, std::int64_t unit, const reduction_kernel* const* kernels,
                                           element_range_function compute, void** outputs, const Part* part = nullptr) {
  struct reduced_loop {
    table_view<loop_reduction> reductions;
    std::int64_t elem_bytes;
    element_range_function compute;
    void** outputs;
  } reduced{reductions_of(plan, s), kernels[0]->elem_bytes, compute, outputs};
  const auto& room = group_of_step(plan, s).loop;
  computed_elements source;
  source.compute = [](void* context, std::int64_t first, std::int64_t last, std::byte* const* to) {
    const auto& r = *static_cast<reduced_loop*>(context);
    for (std::size_t k = 0; k < r.reductions.size(); ++k) r.outputs[r.reductions[k].stored] = before(to[k], first * r.elem_bytes);
    r.compute.run(r.compute.loop, first, last, r.outputs);
  };
  if (compute.accumulate != nullptr)
    source.accumulate_range = [](void* context, std::int64_t first, std::int64_t last, partial_reductions& partial) {
      const auto& r = *static_cast<reduced_loop*>(context);
      r.compute.accumulate(r.compute.loop, first, last, partial);
    };
  source.accumulated_unit = compute.accumulated_unit;
  source.context = &reduced;
  source.kernels = kernels;
  source.count = static_cast<int>(reduced.reductions.size());
  source.total = elements(loop);
  source.unit = unit;
  source.block_elems = reduced_block_elems(room, reduced.elem_bytes);
  loop_results out;
  std::byte* block = device.arena + s.scratch;
  for (int k = 0; k < source.count; ++k) {
    const loop_reduction& f = reduced.reductions[static_cast<std::size_t>(k)];
    out.of[k] = static_cast<std::byte*>(outputs[f.slot]);
    source.owns[k] = f.is_stored();
    if (f.is_stored()) {
      source.blocks[k] = block;
      block += reduced_block_bytes(room, reduced.elem_bytes);
      continue;
    }
    for (int other = 0; other < k; ++other)
      if (reduced.reductions[static_cast<std::size_t>(other)].slot == f.stored) source.blocks[k] = source.blocks[other];
  }
  if (source.accumulate_range != nullptr) source.begin_accumulating();
  const auto& spec = table_of<reduction_spec>(plan)[static_cast<std::size_t>(reduced.reductions[0].reduction)];
  reduce_computed<Part>(source, spec, existing_shape(plan, s, spec.in, device), out, part);
}

}  // namespace gspmd::detail
