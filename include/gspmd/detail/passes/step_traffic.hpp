// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"

namespace gspmd::detail {

/// Notes in every step over which axes devices communicate and how many messages one of them sends; the bytes are there already. Whoever
/// reads the plan, explain or a budget, reads these numbers and does not need what counts them.
constexpr void note_traffic(plan& p) {
  const plan_view view(p);
  for (auto& s : p.steps) {
    s.axes = facts_of(s).axes(view, s);
    s.messages = communicates(s) ? facts_of(s).messages(view, s) : 0;
  }
}

}  // namespace gspmd::detail
