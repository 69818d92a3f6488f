// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "gspmd/detail/ops/set_policy.hpp"
#include "gspmd/ops/traced_body.hpp"

namespace gspmd {

using detail::policy;

/// Returns f(arguments...) and sets a policy for every operator that the call adds to the program. This includes
/// operators in loops, conditionals and gradients in the call. Gradients of these operators have the same policy, even
/// if grad is called elsewhere. The policy of an operator itself or of an inner call takes precedence: the innermost
/// limit holds, and permissions and prohibitions of inner calls remain.
///
/// A reshard in the function is never forbidden, because the user wrote it.
///
/// **Errors.** Those of the operators under the policy, each with its source line.
/// **Example.**
///     // nothing moves but what `layer` says with reshard
///     auto y = with_policy({.forbid_reshard = true}, layer, x, w);
template <class F, class... Arguments>
constexpr auto with_policy(const policy& p, F f, const Arguments&... arguments) {
  static_assert(
      (detail::is_values<Arguments> && ...),
      "gspmd: with_policy: the arguments of the function are values, or tuples or structs of values; capture other arguments");
  detail::graph* const g = detail::graph_of(arguments...);
  const std::size_t before = g == nullptr ? 0 : g->nodes.size();
  auto result = f(arguments...);
  if (g != nullptr) detail::set_policy(*g, before, p);
  return result;
}

}  // namespace gspmd
