// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// The units [first, last) that thread `part` of `parts` computes. The parts of all threads together are all units.
struct part_of_units {
  std::int64_t first, last;

  constexpr part_of_units(std::int64_t units, int part, int parts)
      : first(units / parts * part + units % parts * part / parts),
        last(units / parts * (part + 1) + units % parts * (part + 1) / parts) {}
};

/// Returns the number of elements between adjacent indices of dim d of a dense row-major tensor.
inline std::int64_t step_of_dim(const extents& shape, int d) {
  std::int64_t step = 1;
  for (int k = d + 1; k < shape.count; ++k) step *= shape[k];
  return step;
}
/// Returns the address `offset` bytes after `begin`, or null if `begin` is null.
inline const std::byte* bytes_from(const void* begin, std::int64_t offset) {
  return begin == nullptr ? nullptr : static_cast<const std::byte*>(begin) + offset;
}

}  // namespace gspmd::detail
