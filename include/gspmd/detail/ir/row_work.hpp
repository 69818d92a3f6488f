// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/plan_step.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Steps that process a part of the rows of their operands: passes/lower/row_blocks.hpp.
namespace gspmd::detail {

/// The rows that a step can process separately. A row of the result needs one row of each operand, or an operand
/// that is read for every row.
struct row_work {
  std::int64_t rows = 0;   // the largest number of rows; 0: the step does not process rows
  vec<std::int64_t> read;  // by operand: its elements in all rows; 0: the whole operand is read for each row
  vec<std::int64_t> made;  // by result: its elements
};

/// A block of `at_once` rows of `rows` rows.
struct row_part {
  std::int64_t rows = 0, at_once = 0;
  [[nodiscard]] constexpr std::int64_t of(std::int64_t all) const { return all / rows * at_once; }
};

/// Returns true if value `k` of a step has `elems` elements. For complex values, steps count the real and imaginary
/// parts.
constexpr bool has_elements(const auto& plan, const table_range& values, int k, std::int64_t elems) {
  return elements(plan.values[plan.slots[values.begin + k]].local) == elems;
}

/// Return the number of dims before the first reduced dim, and the elements of these dims.
constexpr int kept_dims(const reduction_spec& spec) {
  int kept = 0;
  while (kept < spec.in.count && (spec.dims & dim_bit(kept)) == 0) ++kept;
  return kept;
}
constexpr std::int64_t kept_rows(const reduction_spec& spec) {
  std::int64_t rows = 1;
  for (int d = 0; d < kept_dims(spec); ++d) rows *= spec.in[d];
  return rows;
}
/// Returns the number of elements of the result.
constexpr std::int64_t reduced_elems(const reduction_spec& spec) {
  std::int64_t elems = 1;
  for (int d = 0; d < spec.in.count; ++d)
    if ((spec.dims & dim_bit(d)) == 0) elems *= spec.in[d];
  return elems;
}
/// Returns the same reduction of a block of rows, with the kept leading dims joined into one.
constexpr reduction_spec rows_of(const reduction_spec& spec, const row_part& part) {
  const int kept = kept_dims(spec);
  reduction_spec some;
  some.reduced_by = spec.reduced_by;
  some.in.push_back(part.of(kept_rows(spec)));
  for (int d = kept; d < spec.in.count; ++d) some.in.push_back(spec.in[d]);
  some.dims = spec.dims >> kept << 1;
  return some;
}

}  // namespace gspmd::detail
