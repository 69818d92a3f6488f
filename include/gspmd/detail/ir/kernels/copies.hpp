// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/kernels/parts.hpp"

namespace gspmd::detail {

/// The prepared object of kernels that need no description.
struct nothing_prepared {};
struct copies_by_parts;  // run/parts/kernels_by_parts.hpp

struct without_description : on_one_device, without_scratch, not_by_rows {
  using tables = mp11::mp_list<>;
  static constexpr step_work work = step_work::computes;
  static constexpr element_kinds handles = element_kinds::bytes;

  static constexpr nothing_prepared prepare(const plan_view&, const plan_step&) { return {}; }
};

namespace kernels {

/// Reads one row at a computed index. The result is zeros if the device does not hold the row.
struct row : plain_step, without_description, never_in_place, runs_on_one_thread {
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// The facts of a step that writes one row, if the device holds it.
struct writes_row : without_description, runs_on_one_thread {
  static constexpr step_role role = step_role::updates_a_part;
  static constexpr bool works_in_place(const plan_step&) { return true; }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t* kept) { kept[1] = kept[2] = 1; }
};
struct set_row : writes_row {
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};
/// Adds to one row.
struct add_row : writes_row {
  static constexpr element_kinds handles = element_kinds::all;
  template <class T>
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Copies a shard to a carried value, or to the result of a conditional's body. If a carried value alternates between
/// two places, it is passed on without a copy: operand and result are the same.
struct copy : without_description {
  using parts = copies_by_parts;
  static constexpr step_role role = step_role::hands_on;
  static constexpr bool works_in_place(const plan_step&) { return true; }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t*) {}
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

/// Computes a device's partial value of a reduction whose result is partial over some axes. For axes that split the
/// operand, this is the device's part. For equal data, it is the whole value on the first device. All other elements
/// are identity elements.
struct terms : plain_step, without_description, never_in_place, runs_on_one_thread {
  static void run(nothing_prepared, const plan_view& p, const plan_step& s, const device_memory& device);
};

}  // namespace kernels

}  // namespace gspmd::detail
