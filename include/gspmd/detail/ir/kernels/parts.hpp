// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/ir/message_plan.hpp"
#include "gspmd/detail/ir/plan_step.hpp"
#include "gspmd/detail/ir/plan_table.hpp"

namespace gspmd::detail {

struct table_views;
struct plan_view;
struct device_memory;
struct devices_here;  // run/ready_step.hpp
class step_memory;
struct row_work;  // ir/row_work.hpp
struct row_part;

/// The facts of a kernel: one struct, in this folder, that states everything a pass, a count or an executor asks about its steps.
///
///   tables            of the plan, which it fills; `spec` of a step is a place in the first of them
///   work              what it does
///   role              what passes must know of it
///   handles           the element types it is compiled for
///   works_in_place    its result may take the place of an operand: of those that mark_kept() does not mark
///   scratch_bytes     memory it needs while it runs
///   find_rows, take_rows    whether it goes through the rows of its operands one after the other, and the same of some rows: of a step
///                     that `lowered` made (passes/lower/step_state.hpp), for passes only
///   axes, messages, packing, rounds    what devices send each other; steps of a plan hold the first two as numbers
///   prepare, freeze   what is worked out once (run/ready_step.hpp)
///   run               does it
///
/// Nothing has a default. What many kernels have in common has a name below, which they give as their base. What is done on a
/// device is defined in run/ and kernels/, so that whoever plans includes no code of kernels.

/// A table of the plan.
enum class entries : std::uint8_t { one_per_step, shared_by_equal_steps, one_per_movement, two_per_movement };
template <class Entry, entries Count>
struct kernel_table {
  using entry = Entry;
  /// How many entries a program of so many local operators has, most likely; `movements` of them have a map.
  static constexpr std::size_t guess(std::size_t ops, std::size_t movements) {
    if constexpr (Count == entries::one_per_movement) return movements;
    if constexpr (Count == entries::two_per_movement) return 2 * movements;
    else return Count == entries::one_per_step ? ops + 16 : 8 + ops / 16;
  }
};

enum class step_work : std::uint8_t {
  computes,  // on one device, from its own memory to its own memory
  moves,     // data between devices; or, as part of that, inside of one
  computes_while_moving,
  ends_moving,  // what another step began
  controls,     // which step comes next: the runner does that
};
enum class step_role : std::uint8_t {
  plain,
  fuses_operators,  // a loop of elementwise operators, planned_group, which may write where any of its inputs lies
  joins_operands,   // its operands, and its results, lie one after the other
  updates_a_part,   // of an operand: where it works in place, nothing else is copied
  hands_on,         // what a body makes. This and what follows stay where they are in the order of steps
  loop_begin,
  loop_end,
  branch,
  otherwise,
  join,
};
enum class element_kinds : std::uint8_t { bytes, all };  // bytes: one function for all types
enum class ring_rounds_kind : std::uint8_t { none, one_way, both_ways };

/// No other device takes part.
struct on_one_device {
  static constexpr axis_mask axes(const plan_view&, const plan_step&) { return 0; }
  static constexpr std::int64_t messages(const plan_view&, const plan_step&) { return 0; }
  static constexpr detail::packing packing(const plan_view&, const plan_step&) { return {}; }
  static constexpr ring_rounds_kind rounds(const plan_view&, const plan_step&) { return ring_rounds_kind::none; }
};
struct without_scratch {
  static constexpr std::int64_t scratch_bytes(const table_views&, const plan_step&) { return 0; }
};
struct never_in_place {
  static constexpr bool works_in_place(const plan_step&) { return false; }
  static constexpr void mark_kept(const table_views&, const plan_step&, std::uint8_t*) {}
};
/// It needs all rows of its operands at once, or nobody has said how it does without.
struct not_by_rows {
  static constexpr void find_rows(const auto&, const plan_step&, row_work&) {}
  static constexpr int take_rows(auto&, plan_step&, const row_part&) { return 0; }
};
struct plain_step {
  static constexpr step_role role = step_role::plain;
};

/// The messages one device of `members` sends in a collective, by the algorithm whose bytes are counted: a ring takes n-1 for
/// all_gather and reduce_scatter and 2(n-1) for all_reduce, all_to_all sends n-1 directly, collective_permute one.
constexpr std::int64_t messages_of(collective_kind kind, std::int64_t members) {
  if (kind == collective_kind::all_reduce) return 2 * (members - 1);
  return kind == collective_kind::collective_permute && members > 1 ? 1 : members - 1;
}

}  // namespace gspmd::detail
