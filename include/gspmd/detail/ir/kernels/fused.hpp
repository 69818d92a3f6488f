// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>

#include "gspmd/detail/ir/fused_group.hpp"
#include "gspmd/detail/ir/inner_part.hpp"
#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/loop_reduction.hpp"
#include "gspmd/detail/ir/row_work.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

struct planned_group {
  extents loop;
  dim_mask cut = 0;  // loop dims that end early on some device: no loop computes padding
  table_range ops;
  table_range stores;
  table_range margins;
  table_range reductions;  // of the last stored values, which are then not results themselves
  int part = -1;           // in table_of<inner_part>: the part of the loop that is computed; -1: the whole loop
  bool is_rim = false;     // computes the rest of the loop after this part
  friend constexpr bool operator==(const planned_group&, const planned_group&) = default;
};

struct fused_loops;
struct loops_by_parts;  // run/parts/kernels_by_parts.hpp

namespace kernels {

/// A sequence of elementwise operators, and reductions of their results.
struct fused : on_one_device {
  using tables =
      mp11::mp_list<kernel_table<planned_group, entries::one_per_step>, kernel_table<scalar_op, entries::one_per_step>,
                    kernel_table<fused_store, entries::one_per_step>, kernel_table<fused_margin, entries::two_per_movement>,
                    kernel_table<inner_part, entries::one_per_movement>,
                    kernel_table<loop_reduction, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr step_role role = step_role::fuses_operators;
  using parts = loops_by_parts;
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
  /// Always true. (A reduction has fewer elements than the loop, and an operand with this number of elements is not
  /// dense.)
  static constexpr bool works_in_place(const plan_step&) { return true; }
  /// An operand is read at the written index if all its loads have the strides of the dense loop and no offset.
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

  /// Finds no rows if rows end early, or if an index is counted along the rows.
  static constexpr void find_rows(const auto& lowered, const plan_step& s, row_work& found) {
    const auto& tables = lowered.out;
    const planned_group& group = table_of<planned_group>(tables)[s.spec];
    if (group.loop.count == 0 || group.cut != 0 || group.part >= 0 || group.margins.count > 0) return;
    std::int64_t rows = group.loop[0];
    found.read = vec<std::int64_t>(static_cast<std::size_t>(s.operands.count), -1);
    found.made = vec<std::int64_t>(static_cast<std::size_t>(s.results.count), elements(group.loop));
    for (int i = group.ops.begin; i < group.ops.begin + group.ops.count; ++i) {
      const scalar_op& op = table_of<scalar_op>(tables)[i];
      if (op.is_index() && op.dim == 0) return;
      if (!op.is_load()) continue;
      if (op.given != 0) return;
      const auto all = op.strides[0] * group.loop[0];
      const auto& from = lowered.out.values[lowered.out.slots[s.operands.begin + op.slot]];
      if (all * bytes_of(op.type) > elements(from.local) * bytes_of(from.type)) return;  // a diagonal
      if (found.read[op.slot] >= 0 && found.read[op.slot] != all) return;
      found.read[op.slot] = all;
    }
    for (const auto elems : found.read)
      if (elems < 0) return;
    for (int i = group.reductions.begin; i < group.reductions.begin + group.reductions.count; ++i) {
      const loop_reduction& f = table_of<loop_reduction>(tables)[i];
      const auto& spec = table_of<reduction_spec>(tables)[f.reduction];
      rows = std::gcd(rows, kept_rows(spec));
      found.made[f.slot] = reduced_elems(spec);
    }
    found.rows = rows;
  }
  static constexpr int take_rows(auto& lowered, plan_step& s, const row_part& part) {
    planned_group group = table_of<planned_group>(lowered.out)[s.spec];
    group.loop[0] = part.of(group.loop[0]);
    const table_range whole = group.reductions;
    auto& all = table_of<loop_reduction>(lowered.out);
    if (whole.count > 0) group.reductions.begin = static_cast<int>(all.size());
    for (int i = whole.begin; i < whole.begin + whole.count; ++i) {
      loop_reduction f = all[i];
      auto& specs = table_of<reduction_spec>(lowered.out);
      const reduction_spec some = rows_of(specs[f.reduction], part);
      f.reduction = entry_of(specs, some);
      all.push_back(f);
    }
    s.spec = entry_of(table_of<planned_group>(lowered.out), group);
    return 0;
  }

  template <class = once>
  static fused_loops prepare(const plan_view& p, const plan_step& s, step_memory& memory);
  template <class Program, int Step, class Part = once>
  static constexpr auto freeze();
  template <class Loops>
  static void run(const Loops& loops, const plan_view& p, const plan_step& s, const device_memory& device) {
    loops.run(p, s, device);
  }
};

}  // namespace kernels

}  // namespace gspmd::detail
