// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// The keys of a sort: the first `keys` operands. A key whose bit is set sorts in descending order.
struct sort_order {
  std::int8_t keys = 1;
  std::uint8_t descending = 0;
  static constexpr void fields(auto& s, auto f) { f(s.keys, s.descending); }
  friend constexpr bool operator==(const sort_order&, const sort_order&) = default;
};

/// Sorts the lines of a shard, with the same permutation for all operands. If `sorted_length` is larger than `length`,
/// elements that sort last fill the rest. They also replace padding.
struct sort_spec {
  std::int64_t outer = 1, length = 0, inner = 1;  // of the operands, dense row-major
  std::int64_t sorted_length = 0;                 // of the results
  std::int64_t cols = 1;    // element i of a line is stored at (i % cols) * (sorted_length / cols) + i / cols
  bool makes_rows = false;  // the results are [outer * inner, sorted_length], not the shape of the operands
  sort_order order;
  static constexpr void fields(auto& s, auto f) { f(s.outer, s.length, s.inner, s.sorted_length, s.cols, s.makes_rows, s.order); }
  friend constexpr bool operator==(const sort_spec&, const sort_spec&) = default;
};

/// Merges each sorted row at its ends with `half` elements of each adjacent part. These are the last elements of the
/// previous part and the first elements of the next part. In the operands they follow the elements of the row. In each
/// merge the part keeps the number of elements that it contributed: the larger ones at its begin, the smaller ones at
/// its end.
struct sort_ends_spec {
  std::int64_t rows = 1, length = 0, half = 0;
  std::int64_t parts = 1;
  bool is_mirrored = false;  // of two parts: all elements of the other part, the last element first
  sort_order order;
  static constexpr void fields(auto& s, auto f) { f(s.rows, s.length, s.half, s.parts, s.is_mirrored, s.order); }
  friend constexpr bool operator==(const sort_ends_spec&, const sort_ends_spec&) = default;
};

struct prepared_sort {
  const sort_spec* spec;
};
struct sorts_by_parts;  // index/detail/part_of_lines.hpp
struct prepared_sort_ends {
  const sort_ends_spec* spec;
};

namespace kernels {

struct sort : device_kernel, plain_step, never_in_place {
  static constexpr const char* name = "sort";
  using description = sort_spec;
  using parts = sorts_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;
  /// Returns the bytes for one line: twice its elements, as numbers with the same order. For several operands, also
  /// their original positions.
  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    const auto n = description_of<sort>(tables, s).sorted_length;
    return 2 * n * (s.operands.count == 1 ? bytes_of(s.type) : 16);
  }
  static constexpr prepared_sort prepare(const sort_spec& spec, const plan_view&, const plan_step&) { return {&spec}; }
  static void run(const prepared_sort& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

struct sort_ends : device_kernel, plain_step, never_in_place, runs_on_one_thread {
  static constexpr const char* name = "sort_ends";
  using description = sort_ends_spec;
  static constexpr element_kinds handles = element_kinds::bytes;
  /// Returns the bytes for the original positions of the elements of a row, if there are several operands.
  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    return s.operands.count == 2 ? 0 : 8 * description_of<sort_ends>(tables, s).half;
  }
  static constexpr prepared_sort_ends prepare(const sort_ends_spec& spec, const plan_view&, const plan_step&) { return {&spec}; }
  static void run(const prepared_sort_ends& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
