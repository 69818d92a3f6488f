// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernels/parts.hpp"
#include "gspmd/detail/ir/permutation_plan.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/ir/spec.hpp"

namespace gspmd::detail::kernels {

/// Over dims of a shard.
struct reduce : plain_step, on_one_device, never_in_place, without_scratch {
  static constexpr action name = action::reduce;
  using tables = mp11::mp_list<kernel_table<reduction_spec, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::all;

  static auto prepare(const auto& p, const plan_step& s) {
    const reduction_spec& spec = table_of<reduction_spec>(p)[static_cast<std::size_t>(s.spec)];
    return prepared_spec<reduction_spec, reduction_plan>{&spec, plan_reduction(spec)};
  }
  template <class Program, int Step>
  static constexpr auto freeze();
  template <class T, class Spec>
  static void run(const Spec& spec, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// A transpose of a shard.
struct permute : plain_step, on_one_device, never_in_place, without_scratch {
  static constexpr action name = action::permute;
  using tables = mp11::mp_list<kernel_table<permutation_spec, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::all;

  static auto prepare(const auto& p, const plan_step& s) {
    const permutation_spec& spec = table_of<permutation_spec>(p)[static_cast<std::size_t>(s.spec)];
    return prepared_spec<permutation_spec, permutation_plan>{&spec, plan_permutation(spec)};
  }
  template <class Program, int Step>
  static constexpr auto freeze();
  template <class T, class Spec>
  static void run(const Spec& spec, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace gspmd::detail::kernels
