// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// The elements that loads of an input read beyond one end of a dim of the tensor, as the program defines them.
struct read_end {
  std::int64_t reach = 0;  // 0: no load reads there
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;
  bool differs = false;  // two loads define the elements differently
  friend constexpr bool operator==(const read_end&, const read_end&) = default;
};
/// The ends of an input by dim: below and above the tensor.
using input_ends = std::array<std::array<read_end, 2>, max_rank>;

/// States whether the ghost layers of an input can be filled, or the reason why not.
enum class fillable : unsigned char { yes, ends_differ, not_known };

}  // namespace gspmd::detail
