// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/ir/row_work.hpp"
#include "gspmd/detail/support/precompiled.hpp"

namespace gspmd::detail {

/// The loops, and the function that is compiled for the elements.
struct prepared_reduction;
struct prepared_permutation;
struct reductions_by_parts;  // run/parts/kernels_by_parts.hpp
struct permutations_by_parts;

namespace kernels {

/// Reduces dims of a shard.
struct reduce : plain_step, on_one_device, never_in_place, without_scratch {
  using tables = mp11::mp_list<kernel_table<reduction_spec, entries::shared_by_equal_steps>>;
  using parts = reductions_by_parts;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr void find_rows(const auto& lowered, const plan_step& s, row_work& found) {
    const reduction_spec& spec = table_of<reduction_spec>(lowered.out)[s.spec];
    if (!has_elements(lowered.out, s.operands, 0, elements(spec.in))) return;
    found.rows = kept_rows(spec);
    found.read.push_back(elements(spec.in));
    found.made.push_back(reduced_elems(spec));
  }
  static constexpr int take_rows(auto& lowered, plan_step& s, const row_part& part) {
    auto& specs = table_of<reduction_spec>(lowered.out);
    const reduction_spec whole = specs[s.spec];
    s.spec = entry_of(specs, rows_of(whole, part));
    return kept_dims(whole) - 1;
  }

  template <class = once>
  static prepared_reduction prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_reduction& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Transposes a shard.
struct permute : plain_step, on_one_device, never_in_place, without_scratch, not_by_rows {
  using tables = mp11::mp_list<kernel_table<permutation_spec, entries::shared_by_equal_steps>>;
  using parts = permutations_by_parts;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  template <class = once>
  static prepared_permutation prepare(const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_permutation& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
