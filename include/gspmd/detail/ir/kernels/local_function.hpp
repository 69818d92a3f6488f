// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"

namespace gspmd::detail::kernels {

/// A user's function of blocks: entry `spec` of the step's `local`. run/local_function_step.hpp has its code.
struct local : device_kernel, plain_step, never_in_place, without_scratch, runs_on_one_thread {
  static constexpr const char* name = "local";
  using description = no_description;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr nothing_prepared prepare(const no_description&, const plan_view&, const plan_step&) { return {}; }
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace gspmd::detail::kernels
