// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/kernels/fold.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"

/// Loops that reduce what they compute, as steps of a plan.
namespace gspmd::detail {

inline table_view<planned_fold> folds_of(const plan_view& plan, const plan_step& s) {
  const auto& folds = group_of_step(plan, s).folds;
  return {table_of<planned_fold>(plan).data() + folds.begin, static_cast<std::size_t>(folds.count)};
}

/// The function that computes elements [first, last) of a loop, row-major, with these outputs; whatever it is that `loop` points to.
struct element_range_function {
  void (*run)(void* loop, std::int64_t first, std::int64_t last, void* const* outputs);
  void* loop;
};

/// Folds what a step's loop computes, of which `loop` exists. `unit`: see computed_elements. `outputs` are the step's results.
[[gnu::noinline]] inline void run_folds(const plan_view& plan, const plan_step& s, const device_memory& device,
                                        const extents& loop, std::int64_t unit, const reduction_kernel* const* kernels,
                                        element_range_function compute, void** outputs) {
  struct reduced_loop {
    table_view<planned_fold> folds;
    std::int64_t elem_bytes;
    element_range_function compute;
    void** outputs;
  } reduced{folds_of(plan, s), kernels[0]->elem_bytes, compute, outputs};
  const auto& room = group_of_step(plan, s).loop;
  computed_elements source;
  source.compute = [](void* context, std::int64_t first, std::int64_t last, std::byte* const* to) {
    const auto& r = *static_cast<reduced_loop*>(context);
    for (std::size_t k = 0; k < r.folds.size(); ++k) r.outputs[r.folds[k].slot] = before(to[k], first * r.elem_bytes);
    r.compute.run(r.compute.loop, first, last, r.outputs);
  };
  source.context = &reduced;
  source.kernels = kernels;
  source.count = static_cast<int>(reduced.folds.size());
  source.total = elements(loop);
  source.unit = unit;
  source.block_elems = fold_block_elems(room, reduced.elem_bytes);
  fold_results out;
  std::byte* block = device.arena + s.scratch;
  for (int k = 0; k < source.count; ++k) {
    source.blocks[k] = block;
    block += fold_block_bytes(room, reduced.elem_bytes);
    out.of[k] = static_cast<std::byte*>(outputs[reduced.folds[static_cast<std::size_t>(k)].slot]);
  }
  const auto& spec = table_of<reduction_spec>(plan)[static_cast<std::size_t>(reduced.folds[0].reduction)];
  fold(source, spec, existing_shape(plan, s, spec.in, device), out);
}

}  // namespace gspmd::detail
