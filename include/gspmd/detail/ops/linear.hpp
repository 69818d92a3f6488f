// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/graph.hpp"

namespace gspmd::detail {

/// How an operator takes operands that are partial with a monoid, the reduction being left for later (F20).
enum class partial_rule : std::uint8_t {
  none,  // every operand must be reduced first
  any,   // one operand may be partial if the others do not differ along its axes; the result is then partial likewise
  all,   // all operands must be partial over the same axes; the result is then partial likewise
};

///   negate, transpose, reshape, reduce     any (negate: add only; reduce: its own monoid only)
///   shift                                  any               the zeros of all devices are a zero in every monoid
///   add, subtract                          all, add          x + 1 of a partial x would add 1 on every device
///   multiply, einsum, divide (operand 0)   any, add          a product of two sums is not a sum of products
///   maximum, minimum, multiply, and, or    all, their own monoid
/// Broadcasts are linear too, but the result is larger than the operand: reducing first sends less.
constexpr partial_rule partial_rule_of(const node& n, int operand, monoid kind) {
  switch (n.op) {
    case opcode::transpose:
    case opcode::shift:
    case opcode::reshape: return partial_rule::any;
    case opcode::reduce: return n.kind == kind ? partial_rule::any : partial_rule::none;
    case opcode::negate:
    case opcode::einsum: return kind == monoid::add ? partial_rule::any : partial_rule::none;
    case opcode::add:
    case opcode::subtract: return kind == monoid::add ? partial_rule::all : partial_rule::none;
    case opcode::multiply:
      if (kind == monoid::multiply) return partial_rule::all;
      return kind == monoid::add ? partial_rule::any : partial_rule::none;
    case opcode::divide:
      return kind == monoid::add && operand == 0 && is_floating(n.type) ? partial_rule::any : partial_rule::none;
    case opcode::maximum: return kind == monoid::maximum ? partial_rule::all : partial_rule::none;
    case opcode::minimum: return kind == monoid::minimum ? partial_rule::all : partial_rule::none;
    case opcode::and_: return kind == monoid::and_ ? partial_rule::all : partial_rule::none;
    case opcode::or_: return kind == monoid::or_ ? partial_rule::all : partial_rule::none;
    default: return partial_rule::none;
  }
}

}  // namespace gspmd::detail
