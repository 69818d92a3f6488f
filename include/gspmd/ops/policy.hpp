// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ops/set_policy.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {

using detail::policy;

/// f(arguments...), with a policy for every operator that the call adds to the program, those of loops, of conditionals and of gradients
/// taken in it included. Gradients of these operators, taken wherever, have the same policy. What an operator, or a call inside, says
/// of itself comes first: the nearest limit holds, and what is allowed or forbidden inside stays so.
///
/// A reshard that the function writes is what the user asks for, and never forbidden.
///
/// Errors: those of the operators under the policy, each at its line.
///
///     auto y = with_policy({.forbid_reshard = true}, layer, x, w);    // nothing moves but what `layer` says with reshard
template <class F, class... Arguments>
constexpr auto with_policy(const policy& p, F f, const Arguments&... arguments) {
  static_assert(
      (detail::is_values<Arguments> && ...),
      "gspmd: with_policy: the arguments of the function are values, or tuples or structs of values; capture what is none");
  detail::graph* const g = detail::graph_of(arguments...);
  const std::size_t before = g == nullptr ? 0 : g->nodes.size();
  auto result = f(arguments...);
  if (g != nullptr) detail::set_policy(*g, before, p);
  return result;
}

}  // namespace gspmd
