// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/compositions/softmax_match.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"

namespace gspmd::detail {

/// Returns the node that rounds the float result of node i to bf16 or f16, as composites do (ops/composite.hpp).
/// Returns -1 if i is not rounded.
constexpr int rounded_result(const gradient_builder& b, int i) {
  if (i + 1 >= static_cast<int>(b.program().nodes.size())) return -1;
  const node& next = b.at(i + 1);
  return next.op == code_of<cast_op> && next.operands[0] == i && is_floating(next.type) && is_narrow(next.type) ? i + 1 : -1;
}

/// Adds the gradient of a softmax or log_softmax. Returns false if the visited operator is neither. If x is bf16 or
/// f16, the gradient is computed as float, from values that a program stores in 16 bits in any case: float copies of
/// the scores would take twice the memory.
///
///   softmax        p (dy - sum(p dy)), where p is the rounded result
///   log_softmax    dy - exp(y) sum(dy), instead of exp(z) sum(dy) / sum(exp(z))
constexpr bool give_softmax(gradient_builder& b) {
  const softmax_match m = softmax_matcher(b.program(), b.visited()).result;
  if (!m.found()) return false;
  const node total = b.at(m.sum);
  const term y = b.y(), dy = b.dy();
  const auto sum_of = [&](term x) {
    return b.as_term(add_reduce(b.program(), x.id(), reduced_dims(total), monoid::add, b.at(b.visited()).at));
  };
  const auto spread = [&](term x) { return b.as_term(add_spread(b.program(), x.id(), total)); };
  const int rounded = rounded_result(b, b.visited());
  if (b.at(b.visited()).op == code_of<divide_op>) {
    const term p = rounded < 0 ? y : b.as_term(add_elementwise(b.program(), code_of<cast_op>, {rounded}, total.at, total.type));
    b.give(m.source, (p * (dy - spread(sum_of(p * dy)))).id());
  } else if (rounded >= 0) {
    b.give(m.source, (dy - term::of<exp_op>(y) * spread(sum_of(dy))).id());
  } else {
    const term share = spread(sum_of(dy) / b.as_term(m.sum));
    b.give(m.source, (dy - b.as_term(m.exponential) * share).id());
  }
  return true;
}

}  // namespace gspmd::detail
