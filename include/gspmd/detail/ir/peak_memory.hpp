// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/support/saturating.hpp"

namespace gspmd::detail {

/// Inputs, outputs and the arena, per device.
constexpr std::int64_t peak_bytes(const plan_view& p) {
  std::int64_t total = p.arena_bytes;
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const int v : *list) total = saturating_add(total, elements(p.value(v).local) * bytes_of(p.value(v).type));
  return total;
}

}  // namespace gspmd::detail
