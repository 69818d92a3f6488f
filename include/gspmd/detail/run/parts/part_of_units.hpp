// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// From `first` to `last`: the part of `units` that thread `part` of `parts` computes. The parts of all of them are all units.
struct part_of_units {
  std::int64_t first, last;

  constexpr part_of_units(std::int64_t units, int part, int parts)
      : first(units / parts * part + units % parts * part / parts),
        last(units / parts * (part + 1) + units % parts * (part + 1) / parts) {}
};

}  // namespace gspmd::detail
