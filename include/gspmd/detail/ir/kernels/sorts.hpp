// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernels/parts.hpp"

namespace gspmd::detail {

/// The keys by which elements are sorted: the first `keys` of the operands, each the larger one first where its bit is set.
struct sort_order {
  std::int8_t keys = 1;
  std::uint8_t descending = 0;
  friend constexpr bool operator==(const sort_order&, const sort_order&) = default;
};

/// The lines of a shard in order, of all operands alike. Where `sorted_length` is larger than `length`, elements that no other one
/// stands behind make up for it, as they do for padding.
struct sort_spec {
  std::int64_t outer = 1, length = 0, inner = 1;  // of the operands, dense row-major
  std::int64_t sorted_length = 0;                 // of the results
  std::int64_t cols = 1;    // element i of a line is put to (i % columns) * (sorted_length / columns) + i / columns
  bool makes_rows = false;  // the results are [outer * inner, sorted_length], not as the operands
  sort_order order;
  friend constexpr bool operator==(const sort_spec&, const sort_spec&) = default;
};

/// Rows that are in order, each merged at its ends with what `half` elements of the parts before and behind it are: their last and
/// first ones, which stand after it in the operands. Of both the part keeps as many as it gave, the larger ones at its begin and the
/// smaller ones at its end.
struct sort_ends_spec {
  std::int64_t rows = 1, length = 0, half = 0;
  std::int64_t parts = 1;
  bool is_mirrored = false;  // of two parts: all of the other one, the last element first
  sort_order order;
  friend constexpr bool operator==(const sort_ends_spec&, const sort_ends_spec&) = default;
};

struct prepared_sort {
  const sort_spec* spec;
};
struct prepared_sort_ends {
  const sort_ends_spec* spec;
};

namespace kernels {

struct sort : plain_step, on_one_device, never_in_place, not_by_rows {
  using tables = mp11::mp_list<kernel_table<sort_spec, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;
  /// The bytes for one line: twice its elements, as numbers that are ordered as they are; for several operands also the places that they
  /// come from.
  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    const auto n = table_of<sort_spec>(tables)[static_cast<std::size_t>(s.spec)].sorted_length;
    return 2 * n * (s.operands.count == 1 ? bytes_of(s.type) : 16);
  }
  static constexpr prepared_sort prepare(const auto& p, const plan_step& s) {
    return {&table_of<sort_spec>(p)[static_cast<std::size_t>(s.spec)]};
  }
  static void run(const prepared_sort& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

struct sort_ends : plain_step, on_one_device, never_in_place, not_by_rows {
  using tables = mp11::mp_list<kernel_table<sort_ends_spec, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;
  /// The bytes for the places that the elements of a row come from, where there are several operands.
  static constexpr std::int64_t scratch_bytes(const auto& tables, const plan_step& s) {
    return s.operands.count == 2 ? 0 : 8 * table_of<sort_ends_spec>(tables)[static_cast<std::size_t>(s.spec)].half;
  }
  static constexpr prepared_sort_ends prepare(const auto& p, const plan_step& s) {
    return {&table_of<sort_ends_spec>(p)[static_cast<std::size_t>(s.spec)]};
  }
  static void run(const prepared_sort_ends& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
