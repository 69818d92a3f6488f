// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// The user's annotation of a value and the sharding that completion has inferred so far (GSPMD 3.5). It is a layout
/// with the dims and axes that completion may change.
struct annotation {
  sharding layout;
  dim_mask open = 0;         // dims that completion may refine
  std::uint64_t stages = 0;  // 4 bits per axis: the first stage of completion that propagates the axis
  axis_mask closed = 0;      // axes along which `layout` is final: completion adds no split

  constexpr annotation() = default;
  constexpr annotation(const sharding& s) : layout(s) {}  // NOLINT: implicit on purpose

  friend constexpr bool operator==(const annotation&, const annotation&) = default;
  friend bool operator==(const annotation&, const sharding&) = delete;  // a sharding has no open dims

  [[nodiscard]] constexpr int stage_of(int axis) const { return static_cast<int>(stages >> (4 * axis) & 15U); }
  [[nodiscard]] constexpr int last_stage() const {
    int last = 0;
    for (const auto& use : layout.splits) last = stage_of(use.axis) > last ? stage_of(use.axis) : last;
    return last;
  }
};

}  // namespace gspmd::detail
