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

/// The facts of a kernel. Each kernel is one struct in this folder, with all facts that passes, counts and executors
/// query about its steps.
///
///   tables            the tables of the plan that it fills; `spec` of a step is an index of the first one
///   work              the kind of work
///   role              the facts that passes need
///   handles           the element types that it is compiled for
///   works_in_place    its result can use the memory of an operand that mark_kept() does not mark
///   scratch_bytes     the memory that it needs during a run
///   find_rows, take_rows    the rows of its operands that form blocks, and the same step for a block of rows. Both are
///                     for a step that `lowered` made (passes/lower/step_state.hpp), and for passes only
///   axes, messages, packing, rounds    its communication; steps of a plan store the first two as numbers
///   prepare, freeze   the computations that are done once (run/ready_step.hpp)
///   run               executes the step
///
/// No fact has a default. A struct below contains the facts that several kernels share, and the kernels use it as a
/// base. Code that runs on a device is defined in run/ and kernels/, so planning includes no code of kernels.

/// A table of the plan.
enum class entries : std::uint8_t { one_per_step, shared_by_equal_steps, one_per_movement, two_per_movement };
template <class Entry, entries Count>
struct kernel_table {
  using entry = Entry;
  /// Returns the probable number of entries for a program with `ops` local operators, including `movements` operators
  /// with a map.
  static constexpr std::size_t guess(std::size_t ops, std::size_t movements) {
    if constexpr (Count == entries::one_per_movement) return movements;
    if constexpr (Count == entries::two_per_movement) return 2 * movements;
    else return Count == entries::one_per_step ? ops + 16 : 8 + ops / 16;
  }
};

enum class step_work : std::uint8_t {
  computes,  // on one device, from its own memory to its own memory
  moves,     // data between devices; a part of this can be inside one device
  computes_while_moving,
  ends_moving,  // that another step started
  controls,     // the next step, which the runner executes
};
enum class step_role : std::uint8_t {
  plain,
  fuses_operators,  // a loop of elementwise operators, planned_group, which can write to the memory of any of its inputs
  joins_operands,   // its operands are contiguous in memory, and so are its results
  updates_a_part,   // of an operand: if it works in place, it copies nothing else
  hands_on,         // the results of a body. This step and the following ones keep their position in the order of steps
  loop_begin,
  loop_end,
  branch,
  otherwise,
  join,
};
enum class element_kinds : std::uint8_t { bytes, all };  // bytes: one function for all types
enum class ring_rounds_kind : std::uint8_t { none, one_way, both_ways };

/// A kernel without communication.
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
/// A kernel that needs all rows of its operands together, or that has no implementation by rows.
struct not_by_rows {
  static constexpr void find_rows(const auto&, const plan_step&, row_work&) {}
  static constexpr int take_rows(auto&, plan_step&, const row_part&) { return 0; }
};
struct plain_step {
  static constexpr step_role role = step_role::plain;
};

/// Returns the messages that one device of `members` sends in a collective, by the algorithm whose bytes are counted. A
/// ring takes n-1 messages for all_gather and reduce_scatter and 2(n-1) for all_reduce. all_to_all sends n-1 direct
/// messages, collective_permute one.
constexpr std::int64_t messages_of(collective_kind kind, std::int64_t members) {
  if (kind == collective_kind::all_reduce) return 2 * (members - 1);
  return kind == collective_kind::collective_permute && members > 1 ? 1 : members - 1;
}

}  // namespace gspmd::detail
