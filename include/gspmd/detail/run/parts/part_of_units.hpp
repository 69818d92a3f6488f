// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// The units [first, last) that thread `part` of `parts` computes. The parts of all threads together are all units.
struct part_of_units {
  std::int64_t first, last;

  constexpr part_of_units(std::int64_t units, int part, int parts)
      : first(units / parts * part + units % parts * part / parts),
        last(units / parts * (part + 1) + units % parts * (part + 1) / parts) {}
};

}  // namespace gspmd::detail
