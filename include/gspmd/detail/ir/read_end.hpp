// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "gspmd/detail/ir/index_map.hpp"
#include "gspmd/detail/ir/layout.hpp"

namespace gspmd::detail {

/// How the loads of an input go on beyond one end of a dim of the tensor, in the words of the program.
struct read_end {
  std::int64_t reach = 0;  // 0: nothing is read there
  continuation beyond = continuation::none;
  std::uint64_t fill = 0;
  bool differs = false;  // one load goes on otherwise than another one
  friend constexpr bool operator==(const read_end&, const read_end&) = default;
};
/// Of an input, by dim: below and above the tensor.
using input_ends = std::array<std::array<read_end, 2>, max_rank>;

/// Whether the layers of an input can be filled for a program, and why not.
enum class fillable : unsigned char { yes, ends_differ, not_known };

}  // namespace gspmd::detail
