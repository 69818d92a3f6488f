// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/extend/kernel.hpp"

namespace gspmd::detail {

/// A scan of a shard: each result is the reduction of all elements up to its index along a dim. If the dim is split, a
/// second operand has `parts` values for each line: the reduction of the elements of each part.
struct scan_spec {
  extents shape;  // allocated, dense row-major
  std::int8_t dim = 0;
  monoid combined_by = monoid::add;
  bool is_exclusive = false;  // excludes the element at the index
  bool is_reversed = false;   // reduces the elements from an index on
  std::int64_t parts = 1;
  static constexpr void fields(auto& s, auto f) { f(s.shape, s.dim, s.combined_by, s.is_exclusive, s.is_reversed, s.parts); }
  friend constexpr bool operator==(const scan_spec&, const scan_spec&) = default;
};

/// The k largest elements of every line of the last dim, and their positions.
struct top_k_spec {
  extents shape;          // allocated, dense row-major
  std::int64_t k = 0;     // of the result; if a line has fewer elements, all its elements
  bool is_merge = false;  // operand 1 has the positions of the elements
  static constexpr void fields(auto& s, auto f) { f(s.shape, s.k, s.is_merge); }
  friend constexpr bool operator==(const top_k_spec&, const top_k_spec&) = default;
};

struct prepared_scan;
struct prepared_top_k;
struct scans_by_parts;  // index/detail/part_of_lines.hpp
struct top_k_by_parts;

namespace kernels {

struct scan : device_kernel, plain_step, never_in_place, without_scratch {
  static constexpr const char* name = "scan";
  using description = scan_spec;
  using parts = scans_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;
  template <class = once>
  static prepared_scan prepare(const scan_spec& spec, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_scan& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

struct top_k : device_kernel, plain_step, never_in_place, without_scratch {
  static constexpr const char* name = "top_k";
  using description = top_k_spec;
  using parts = top_k_by_parts;
  static constexpr element_kinds handles = element_kinds::bytes;
  template <class = once>
  static prepared_top_k prepare(const top_k_spec& spec, const plan_view& p, const plan_step& s);
  template <class Program, int Step>
  static constexpr auto freeze();
  static void run(const prepared_top_k& prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
