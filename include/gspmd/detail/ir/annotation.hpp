// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// The annotation of a value by the user, and what completion has found of its sharding so far (GSPMD 3.5): a layout, and how much of it is asked for.
struct annotation {
  sharding layout;
  dim_mask open = 0;         // dims that completion may refine
  std::uint64_t stages = 0;  // 4 bits per axis: from which stage on completion passes it on
  axis_mask closed = 0;      // axes along which it lies as `layout` says, and completion adds no split

  constexpr annotation() = default;
  constexpr annotation(const sharding& s) : layout(s) {}  // NOLINT: implicit on purpose

  friend constexpr bool operator==(const annotation&, const annotation&) = default;
  friend bool operator==(const annotation&, const sharding&) = delete;  // which says nothing of the open dims

  [[nodiscard]] constexpr int stage_of(int axis) const { return static_cast<int>(stages >> (4 * axis) & 15U); }
  [[nodiscard]] constexpr int last_stage() const {
    int last = 0;
    for (const auto& use : layout.splits) last = stage_of(use.axis) > last ? stage_of(use.axis) : last;
    return last;
  }
};

}  // namespace gspmd::detail
