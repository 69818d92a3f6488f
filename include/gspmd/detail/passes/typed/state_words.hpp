// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "gspmd/detail/ir/axis_state.hpp"
#include "gspmd/detail/ir/transition.hpp"
#include "gspmd/detail/support/text.hpp"

/// The words for states and device actions in messages about types. Programs without types do not use them.
namespace gspmd::detail {

/// Returns the state of data without a gradient: only equality matters, so a replica or invariant is a constant.
constexpr axis_state without_gradient(const axis_state& a) {
  return a.is == state::replica || a.is == state::invariant ? axis_state{state::constant} : a;
}

/// Returns, for example, `sharded (dim 0)`, to be used after the word `is`.
constexpr text long_text(const axis_state& a) {
  switch (a.is) {
    case state::constant: return "constant";
    case state::replica: return "a replica";
    case state::invariant: return "invariant";
    case state::varying: return "varying";
    case state::shard: return text("sharded (dim ") << a.dim << ')';
    case state::partial: break;
  }
  if (a.reduced_by == monoid::add) return "a partial sum";  // as a conditional expression, GCC 12 frees the result
  return text("partial by ") << name_of(a.reduced_by);
}

/// Returns the collective of an action; empty if nothing is sent.
constexpr std::string_view collective_of(device_action is) {
  switch (is) {
    case device_action::gather: return "all_gather";
    case device_action::gather_sum: return "reduce_scatter";
    case device_action::sum: return "all_reduce";
    case device_action::exchange: return "all_to_all";
    case device_action::permute: return "collective_permute";
    case device_action::nothing:
    case device_action::keep_own:
    case device_action::keep_first:
    case device_action::pad_zeros: break;
  }
  return {};
}

}  // namespace gspmd::detail
