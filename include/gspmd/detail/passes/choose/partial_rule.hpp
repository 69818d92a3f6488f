// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// States whether choose leaves an operand partial, so that its reduction happens later (GSPMD 3.2).
enum class partial_rule : std::uint8_t {
  none,  // the operand is reduced first
  any,   // the operand may be partial if the other operands are equal along its axes; the result is then partial too
  all,   // all operands must be partial over the same axes; the result is then partial too
};

/// Returns the rule for operand `k` of a node, if the operand is partial by monoid `kind`. A value that is computed
/// again for each user (a broadcast) is computed from the reduced operand: one reduction then serves all users.
constexpr partial_rule partial_rule_of(const node& n, int k, monoid kind) {
  const operator_class c = facts_of(n.op).meets(n, kind);
  if (c.turns_order || (c.selectors >> k & 1U) != 0) return partial_rule::none;
  switch (c.takes) {
    case partial_class::none:
    case partial_class::scaled:
    case partial_class::quotient:
    case partial_class::affine: return partial_rule::none;
    case partial_class::one: break;
    case partial_class::first:
      if (k != 0) return partial_rule::none;
      break;
    case partial_class::all:
      for (int o = 0; o < n.operands.count; ++o)
        if (o != k && (c.selectors >> o & 1U) == 0) return partial_rule::all;
  }
  return facts_of(n.op).is_made_again(n) ? partial_rule::none : partial_rule::any;
}

}  // namespace gspmd::detail
