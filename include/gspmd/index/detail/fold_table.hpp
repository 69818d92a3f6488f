// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernels/parts.hpp"

namespace gspmd::detail {

/// A reduction or scan along one dim of several tensors by a user's monoid. An optional second set of operands has the
/// initial value of each part: [..., parts, ...].
struct fold_spec {
  std::int8_t dim = 0;
  bool is_scan = false;       // every index has a result
  bool is_exclusive = false;  // excludes the element at the index
  bool is_reversed = false;   // reduces the elements from an index on
  friend constexpr bool operator==(const fold_spec&, const fold_spec&) = default;
};

struct prepared_fold {
  const fold_spec* spec;
};

namespace kernels {

struct fold : plain_step, on_one_device, never_in_place, without_scratch, not_by_rows {
  using tables = mp11::mp_list<kernel_table<fold_spec, entries::shared_by_equal_steps>>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;
  static constexpr prepared_fold prepare(const auto& p, const plan_step& s) {
    return {&table_of<fold_spec>(p)[static_cast<std::size_t>(s.spec)]};
  }
  static void run(const prepared_fold& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
