// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/registry.hpp"

namespace gspmd::detail {

/// Whether choose leaves an operand partial, the reduction being left for later (GSPMD 3.2).
enum class partial_rule : std::uint8_t {
  none,  // it is reduced first
  any,   // it may be partial if the others do not differ along its axes; the result is then partial likewise
  all,   // all operands must be partial over the same axes; the result is then partial likewise
};

/// A value that is made again where it is read (a broadcast) is made of the reduced operand: reduced once, the operand serves all who read
/// it.
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
