// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/inner_part.hpp"
#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/loop_reduction.hpp"

namespace gspmd::detail {

struct planned_group {
  extents loop;
  dim_mask cut = 0;  // loop dims that end early on some device: no loop computes padding
  table_range ops;
  table_range stores;
  table_range margins;
  table_range reductions;  // of what is stored last; those are no results themselves
  int part = -1;           // in table_of<inner_part>: what of the loop is computed; -1: all of it
  bool is_rim = false;     // what that leaves
  friend constexpr bool operator==(const planned_group&, const planned_group&) = default;
};

struct fused_loops;

namespace kernels {

/// A run of elementwise operators, and reductions of what they compute.
struct fused : on_one_device {
  static constexpr action name = action::fused;
  using tables =
      mp11::mp_list<kernel_table<planned_group, entries::one_per_step>, kernel_table<scalar_op, entries::one_per_step>,
                    kernel_table<fused_store, entries::one_per_step>, kernel_table<fused_margin, entries::two_per_movement>,
                    kernel_table<inner_part, entries::one_per_movement>,
                    kernel_table<loop_reduction, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr step_role role = step_role::fuses_operators;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    const planned_group& group = table_of<planned_group>(tables)[static_cast<std::size_t>(s.spec)];
    std::int64_t bytes = 0;
    for (int i = group.reductions.begin; i < group.reductions.begin + group.reductions.count; ++i) {
      const loop_reduction& f = table_of<loop_reduction>(tables)[static_cast<std::size_t>(i)];
      if (f.is_stored()) bytes += reduced_block_bytes(group.loop, bytes_of(f.type));
    }
    return bytes;
  }
  /// (A reduction has fewer elements than the loop, and an operand with so few is no dense one.)
  static constexpr bool works_in_place(const plan_step&) { return true; }
  /// An operand is read at the index that is written if all its loads have the strides of the dense loop, and no offset.
  static constexpr void mark_kept(const auto& tables, const plan_step& s, std::uint8_t* kept) {
    const planned_group& group = table_of<planned_group>(tables)[static_cast<std::size_t>(s.spec)];
    const auto& ops = table_of<scalar_op>(tables);
    for (int i = group.ops.begin; i < group.ops.begin + group.ops.count; ++i) {
      const scalar_op& op = ops[static_cast<std::size_t>(i)];
      if (op.is_load() && (op.is_at_offset() || !is_dense(group.loop, op.strides))) kept[op.slot] = 1;
    }
    const auto& margins = table_of<fused_margin>(tables);
    for (int i = group.margins.begin; i < group.margins.begin + group.margins.count; ++i)
      kept[margins[static_cast<std::size_t>(i)].slot] = 1;
  }

  static fused_loops prepare(const plan_view& p, const plan_step& s, step_memory& memory);
  template <class Program, int Step>
  static constexpr auto freeze();
  template <class Loops>
  static void run(const Loops& loops, const plan_view& p, const plan_step& s, const device_memory& device) {
    loops.run(p, s, device);
  }
};

}  // namespace kernels

}  // namespace gspmd::detail
