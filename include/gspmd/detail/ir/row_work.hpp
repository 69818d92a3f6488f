// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/plan_step.hpp"
#include "gspmd/detail/ir/reduction_plan.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Steps on some of the rows of what they read: passes/lower/row_blocks.hpp.
namespace gspmd::detail {

/// How a step goes through shards row by row: what a row of the result needs lies in one row of each operand, or is read for every row.
struct row_work {
  std::int64_t rows = 0;   // at most so many; 0: it does not
  vec<std::int64_t> read;  // by operand: how many elements it holds from its first row to its last one; 0: it is read whole
  vec<std::int64_t> made;  // by result: its elements
};

/// So many of all rows at once.
struct row_part {
  std::int64_t rows = 0, at_once = 0;
  [[nodiscard]] constexpr std::int64_t of(std::int64_t all) const { return all / rows * at_once; }
};

/// Whether a value of a step has so many elements: of complex ones, steps count the parts.
constexpr bool has_elements(const auto& plan, const table_range& values, int k, std::int64_t elems) {
  return elements(plan.values[plan.slots[values.begin + k]].local) == elems;
}

/// The dims before the first one that is reduced, and their elements.
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
/// Returns the elements of the result.
constexpr std::int64_t reduced_elems(const reduction_spec& spec) {
  std::int64_t elems = 1;
  for (int d = 0; d < spec.in.count; ++d)
    if ((spec.dims & dim_bit(d)) == 0) elems *= spec.in[d];
  return elems;
}
/// The same reduction of some rows, the dims of which are one.
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
