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

/// The facts of a kernel. Each kernel is one struct, with all facts that passes, counts and executors query about its
/// steps. The facts of every kernel:
///
///   work              the kind of work (ir/kernel_list.hpp)
///   role              the facts that passes need
///   handles           the element types that it is compiled for
///   works_in_place    its result can use the memory of an operand that mark_kept() does not mark
///   scratch_bytes     the memory that it needs during a run
///   parts             the parts of a step that the threads of a device run (run/parts/kernels_by_parts.hpp); one_thread:
///                     one thread runs the step
///   prepare, freeze   the computations that are done once (run/ready_step.hpp)
///   run               executes the step
///
/// A listed kernel (ir/kernel_list.hpp) also states:
///
///   tables            the tables of the plan that it fills; `spec` of a step is an index of the first one
///   find_rows, take_rows    the rows of its operands that form blocks, and the same step for a block of rows. Both are
///                     for a step that `lowered` made (passes/lower/step_state.hpp), and for passes only
///   axes, messages, packing, rounds    its communication; steps of a plan store the first two as numbers
///
/// Every other kernel is a device_kernel. It computes on one device, and its rows are not divided into blocks. It
/// states:
///
///   name              identifies the kernel
///   description       the type of the data of a step (ir/description.hpp), or no_description
///
/// No fact has a default. A struct below contains the facts that several kernels share, and the kernels use it as a
/// base. Code that runs on a device is defined in run/ and kernels/, so planning includes no code of kernels.

/// A table of the plan.
enum class entries : std::uint8_t { one_per_step, shared_by_equal_steps, one_per_movement, two_per_movement, words };
template <class Entry, entries Count>
struct kernel_table {
  using entry = Entry;
  /// Returns the probable number of entries for a program with `ops` local operators, including `movements` operators
  /// with a map.
  static constexpr std::size_t guess(std::size_t ops, std::size_t movements) {
    if constexpr (Count == entries::one_per_movement) return movements;
    if constexpr (Count == entries::two_per_movement) return 2 * movements;
    if constexpr (Count == entries::words) return 48 + ops + 8 * movements;
    else return Count == entries::one_per_step ? ops + 16 : 8 + ops / 16;
  }
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
/// A kernel whose steps are not divided between the threads of a device.
struct one_thread {
  static constexpr bool is_one = false;
};
struct runs_on_one_thread {
  using parts = one_thread;
};

/// The base of every kernel that is not listed.
struct device_kernel {
  static constexpr step_work work = step_work::computes;
};

/// Returns the messages that one device of `members` sends in a collective, by the algorithm whose bytes are counted. A
/// ring takes n-1 messages for all_gather and reduce_scatter and 2(n-1) for all_reduce. all_to_all sends n-1 direct
/// messages, collective_permute one.
constexpr std::int64_t messages_of(collective_kind kind, std::int64_t members) {
  if (kind == collective_kind::all_reduce) return 2 * (members - 1);
  return kind == collective_kind::collective_permute && members > 1 ? 1 : members - 1;
}

}  // namespace gspmd::detail
