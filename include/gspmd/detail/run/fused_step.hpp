// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/fused_dynamic.hpp"
#include "gspmd/detail/run/loop_reduction_step.hpp"
#include "gspmd/detail/run/padding.hpp"
#include "gspmd/detail/run/ready_step.hpp"

/// A fused step of a session.
namespace gspmd::detail {

/// The loops of a step. There are several if the existing elements differ between devices. Each loop is made for the
/// first device that needs it.
struct fused_loops {
  step_memory* memory;
  mutable std::vector<const void*> inputs;
  mutable std::vector<void*> outputs;
  mutable std::vector<std::int64_t> offsets;
  mutable std::vector<fused_code> made;
  std::vector<const reduction_kernel*> kernels;  // of the step's reductions

  /// Returns the code of a loop. If the step has reductions, they read a dense array of the elements that exist.
  /// Otherwise results have the extents of the step's loop.
  const fused_code& code_of(const plan_view& plan, const plan_step& s, const extents& loop, const loop_box& box) const {
    for (const auto& code : made)
      if (code.whole == loop && code.begin == box.begin && code.group.loop == box.size()) return code;
    auto group = group_of(plan, s);
    group.loop = loop;
    made.emplace_back(group, kernels.empty() ? group_of_step(plan, s).loop : loop, box);
    memory->need(made.back().scratch_bytes);
    if (kernels.size() == 1) {
      const loop_reduction& f = reductions_of(plan, s)[0];
      if (table_of<reduction_spec>(plan)[static_cast<std::size_t>(f.reduction)].reduced_by == monoid::add)
        made.back().add_up(f.stored, 4 * kernels[0]->lanes);
    }
    return made.back();
  }
  struct reduced_loop {
    const fused_loops& own;
    const fused_code& code;
    const given_rows* given;
    static void run(void* loop, std::int64_t first, std::int64_t last, void* const* outputs) {
      const auto& [own, code, given] = *static_cast<reduced_loop*>(loop);
      run_fused(code, own.inputs.data(), outputs, own.offsets.data(), own.memory->get(), given, first, last);
    }
    static void add_up(void* loop, std::int64_t first, std::int64_t last, partial_reductions& partial) {
      const auto& [own, code, given] = *static_cast<reduced_loop*>(loop);
      run_fused(code, own.inputs.data(), own.outputs.data(), own.offsets.data(), own.memory->get(), given, first, last, &partial);
    }
  };
  template <class Part = once, class Reduced = void>
  void run(const plan_view& plan, const plan_step& s, const device_memory& device, const Reduced* part = nullptr) const {
    for (int k = 0; k < s.operands.count; ++k) inputs[static_cast<std::size_t>(k)] = device.read(plan.operand(s, k).where);
    for (int k = 0; k < s.results.count; ++k) outputs[static_cast<std::size_t>(k)] = device.write(plan.result(s, k).where);
    find_offsets(plan, s, device, offsets.data());
    const planned_group& group = group_of_step(plan, s);
    const extents loop = group.cut == 0 ? group.loop : existing_loop(plan, s, device);
    if (!kernels.empty()) {
      const auto& code = code_of(plan, s, loop, loop_box(loop));
      reduced_loop reduced{*this, code, device.given};
      run_loop_reductions(plan, s, device, loop, code.blocks.has_whole_rows ? code.blocks.row : 1, kernels.data(),
                          {reduced_loop::run, &reduced, code.sum != nullptr ? reduced_loop::add_up : nullptr,
                           loop.count > 1 ? 4 * kernels[0]->lanes : 1},
                          outputs.data(), part);
      if (group.cut != 0 && device.part == 0) clear_results(plan, s, device);
      return;
    }
    for_each_box<Part>(plan, s, loop, device, [&](const loop_box& box) {
      const auto& code = code_of(plan, s, loop, box);  // before memory->get(), because new code may need more memory
      run_fused(code, inputs.data(), outputs.data(), offsets.data(), memory->get(), device.given);
    });
    if (group.cut != 0 && !is_inner_part(plan, s) && device.part == 0) clear_results(plan, s, device);
  }
};

template <class>
fused_loops kernels::fused::prepare(const plan_view& plan, const plan_step& s, step_memory& memory) {
  const auto count = [](const table_range& range) { return static_cast<std::size_t>(range.count); };
  fused_loops loops{&memory,
                    std::vector<const void*>(count(s.operands)),
                    std::vector<void*>(count(s.results)),
                    std::vector<std::int64_t>(count(s.bounds)),
                    {},
                    {}};
  for (const auto& f : reductions_of(plan, s)) {
    const auto& spec = table_of<reduction_spec>(plan)[static_cast<std::size_t>(f.reduction)];
    with_computing_type(
        f.type, [&](auto element) { loops.kernels.push_back(&reduction_kernel_for<decltype(element)>(spec.reduced_by)); });
  }
  const planned_group& group = group_of_step(plan, s);
  if (group.cut == 0) for_each_box(plan, s, group.loop, [&](const loop_box& box) { loops.code_of(plan, s, group.loop, box); });
  return loops;
}

}  // namespace gspmd::detail
