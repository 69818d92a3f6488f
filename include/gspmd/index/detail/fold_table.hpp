// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// A reduction or scan along one dim of several tensors by a user's monoid. An optional second set of operands has the
/// initial value of each part: [..., parts, ...].
struct fold_spec {
  std::int8_t dim = 0;
  bool is_scan = false;       // every index has a result
  bool is_exclusive = false;  // excludes the element at the index
  bool is_reversed = false;   // reduces the elements from an index on
  static constexpr void fields(auto& s, auto f) { f(s.dim, s.is_scan, s.is_exclusive, s.is_reversed); }
  friend constexpr bool operator==(const fold_spec&, const fold_spec&) = default;
};

struct prepared_fold {
  const fold_spec* spec;
};

namespace kernels {

struct fold : device_kernel, plain_step, never_in_place, without_scratch, runs_on_one_thread {
  static constexpr const char* name = "fold";
  using description = fold_spec;
  static constexpr element_kinds handles = element_kinds::bytes;
  static constexpr prepared_fold prepare(const fold_spec& spec, const plan_view&, const plan_step&) { return {&spec}; }
  static void run(const prepared_fold& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
