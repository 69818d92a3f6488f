// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernels/parts.hpp"

namespace gspmd::detail {

/// Steps that run on blocks of rows.
struct row_blocks {
  std::int64_t rows = 0, at_once = 0;
  // operands whose memory a result of the same size can use: each row is read before it is written
  std::uint64_t given_up = 0;

  /// Returns the first row of a block. The last block ends with the last row.
  [[nodiscard]] constexpr std::int64_t first_row(std::int64_t block) const {
    return block * at_once < rows - at_once ? block * at_once : rows - at_once;
  }
  friend constexpr bool operator==(const row_blocks&, const row_blocks&) = default;
};

}  // namespace gspmd::detail

namespace gspmd::detail::kernels {

/// A step at the begin or the end of the body of a loop or conditional.
template <step_role Role>
struct region_end : on_one_device, without_scratch, never_in_place, not_by_rows, runs_on_one_thread {
  using tables = mp11::mp_list<>;
  static constexpr step_work work = step_work::controls;
  static constexpr step_role role = Role;
  static constexpr element_kinds handles = element_kinds::bytes;
};

// The body of a loop follows, up to the loop_end at `target`. If the loop has no iterations, the program continues
// after it.
struct loop_begin : region_end<step_role::loop_begin> {};
struct loop_end : region_end<step_role::loop_end> {};
// If its operand is false, the program continues after `target`, the otherwise step. After an otherwise step, the
// program continues at the `target` of that step, the join step.
struct branch : region_end<step_role::branch> {};
struct otherwise : region_end<step_role::otherwise> {};
struct join : region_end<step_role::join> {};
// The steps up to the rows_end at `target` run block by block. Operands and results are the values that these steps
// read and write and whose rows are all in memory. The first result is the number of the first row of the block.
struct rows_begin : region_end<step_role::loop_begin> {
  using tables = mp11::mp_list<kernel_table<row_blocks, entries::shared_by_equal_steps>>;
  static constexpr bool works_in_place(const plan_step&) { return true; }
  static constexpr void mark_kept(const auto& tables, const plan_step& s, std::uint8_t* kept) {
    const row_blocks& blocks = table_of<row_blocks>(tables)[static_cast<std::size_t>(s.spec)];
    for (int k = 0; k < s.operands.count; ++k) kept[k] = k >= 64 || (blocks.given_up >> k & 1U) == 0 ? 1 : 0;
  }
};
struct rows_end : region_end<step_role::loop_end> {};

}  // namespace gspmd::detail::kernels
