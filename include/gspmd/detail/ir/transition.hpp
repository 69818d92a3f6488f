// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/support/saturating.hpp"

/// All transitions of a value from one state along an axis to another. Each has the action of the devices forward,
/// their action on the gradient backward, and the bytes of both. This table is the only source for reshards and
/// collectives of the explicit and the manual mode, their gradients, and the remedies in messages.
namespace gspmd::detail {

enum class transition_kind : std::uint8_t { reinterpret, convert, all_gather, all_to_all, permute, all_reduce, reduce_scatter };
constexpr std::string_view name_of(transition_kind kind) {
  constexpr std::string_view names[] = {"reinterpret", "convert",    "all_gather",    "all_to_all",
                                        "permute",     "all_reduce", "reduce_scatter"};
  return names[static_cast<int>(kind)];
}

/// The action of the devices along an axis on their data, forward or backward in a transition.
enum class device_action : std::uint8_t {
  nothing,
  keep_own,    // each device keeps its part of data that all devices hold
  keep_first,  // the first device keeps the data, the other devices have zeros
  pad_zeros,   // the device's part, with zeros elsewhere
  gather,
  gather_sum,  // the sum, then each device its part
  sum,
  exchange,
  permute,
};

/// Returns the bytes that one device of n sends in the usual ring and direct algorithms. The device holds `before`
/// bytes before and `after` bytes after the action, padding included.
constexpr std::int64_t bytes_of(device_action is, std::int64_t n, std::int64_t before, std::int64_t after) {
  if (n <= 1) return 0;
  switch (is) {
    case device_action::nothing:
    case device_action::keep_own:
    case device_action::keep_first:
    case device_action::pad_zeros: return 0;
    case device_action::gather: return saturating_multiply(n - 1, before);
    case device_action::gather_sum: return saturating_multiply(n - 1, after);
    case device_action::sum: return 2 * before - 2 * before / n;
    case device_action::exchange: return before - before / n;
    case device_action::permute: return before;
  }
  return 0;
}

struct transition {
  transition_kind by;
  state from, to;
  device_action forward, backward;
  bool is_for_experts = false;  // correct, but only if requested by name: messages do not propose it
  std::int8_t inverse = -1;     // the row that is its backward pass; -1: two rows in sequence
};

// clang-format off
inline constexpr transition transitions[] = {
    {transition_kind::convert,        state::replica,   state::invariant, device_action::nothing,    device_action::keep_first, true, 8},
    {transition_kind::reinterpret,    state::replica,   state::varying,   device_action::nothing,    device_action::nothing,    false, 10},
    {transition_kind::convert,        state::replica,   state::shard,     device_action::keep_own,   device_action::pad_zeros,  false, 11},
    // n times the value:
    {transition_kind::reinterpret,    state::replica,   state::partial,   device_action::nothing,    device_action::nothing,    true, 3},
    {transition_kind::convert,        state::replica,   state::partial,   device_action::keep_first, device_action::keep_first, false, 4},
    {transition_kind::convert,        state::invariant, state::replica,   device_action::nothing,    device_action::sum,        false, 17},
    {transition_kind::reinterpret,    state::invariant, state::varying,   device_action::nothing,    device_action::sum,        false, -1},
    {transition_kind::convert,        state::invariant, state::shard,     device_action::keep_own,   device_action::gather,     false, 13},
    {transition_kind::convert,        state::invariant, state::partial,   device_action::keep_first, device_action::nothing,    true, 0},
    // n times the value:
    {transition_kind::reinterpret,    state::invariant, state::partial,   device_action::nothing,    device_action::sum,        true, -1},
    {transition_kind::reinterpret,    state::varying,   state::partial,   device_action::nothing,    device_action::nothing,    false, 1},
    {transition_kind::convert,        state::shard,     state::partial,   device_action::pad_zeros,  device_action::keep_own,   false, 2},
    {transition_kind::all_gather,     state::shard,     state::replica,   device_action::gather,     device_action::gather_sum, false, 18},
    {transition_kind::all_gather,     state::shard,     state::invariant, device_action::gather,     device_action::keep_own,   false, 7},
    {transition_kind::all_to_all,     state::shard,     state::shard,     device_action::exchange,   device_action::exchange,   false, 14},
    {transition_kind::permute,        state::varying,   state::varying,   device_action::permute,    device_action::permute,    false, 15},
    {transition_kind::all_reduce,     state::partial,   state::replica,   device_action::sum,        device_action::sum,        false, 16},
    {transition_kind::all_reduce,     state::partial,   state::invariant, device_action::sum,        device_action::nothing,    false, 5},
    {transition_kind::reduce_scatter, state::partial,   state::shard,     device_action::gather_sum, device_action::gather,     false, 12},
    // the value is no longer known to be parts of a dim:
    {transition_kind::reinterpret,    state::varying,   state::varying,   device_action::nothing,    device_action::nothing,    true, 19},
};
// clang-format on
inline constexpr int transition_count = static_cast<int>(sizeof(transitions) / sizeof(*transitions));

/// Returns the row of a transition that a program requests, or -1 if the transition does not exist. A varying operand
/// of a gather or varying result of a scatter counts as a shard. The values are stacked along a new dim 0, or cut along
/// it.
constexpr int row_of(transition_kind by, state from, state to) {
  if ((by == transition_kind::all_gather || by == transition_kind::convert) && from == state::varying) from = state::shard;
  if ((by == transition_kind::reduce_scatter || by == transition_kind::convert) && to == state::varying) to = state::shard;
  for (int r = 0; r < transition_count; ++r)
    if (transitions[r].by == by && transitions[r].from == from && transitions[r].to == to) return r;
  return -1;
}

/// Returns the row from one state to another, of any kind, or -1 if no row exists. A constant uses the rows of the
/// other kinds of equal data.
constexpr int row_between(const axis_state& from, const axis_state& to) {
  const state is = from.is == state::constant ? (to.is == state::replica ? state::invariant : state::replica) : from.is;
  for (const transition_kind by : {transition_kind::convert, transition_kind::all_gather, transition_kind::all_to_all,
                                   transition_kind::all_reduce, transition_kind::reduce_scatter, transition_kind::reinterpret})
    if (const int row = row_of(by, is, to.is); row >= 0) return row;
  return -1;
}

}  // namespace gspmd::detail
