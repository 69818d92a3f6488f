// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/broadcast.hpp"
#include "gspmd/detail/ops/gradient_builder.hpp"
#include "gspmd/detail/ops/softmax_match.hpp"

namespace gspmd::detail {

/// The gradient of a softmax or its logarithm as one; false where the visited operator is none.
constexpr bool give_softmax(gradient_builder& b) {
  const softmax_match m = softmax_matcher(b.program(), b.visited()).result;
  if (!m.found()) return false;
  const node total = b.at(m.sum);
  const term y = b.y(), dy = b.dy();
  const auto sum_of = [&](term x) {
    return b.as_term(add_reduce(b.program(), x.id(), reduced_dims(total), monoid::add, b.at(b.visited()).at));
  };
  const auto spread = [&](term x) { return b.as_term(add_spread(b.program(), x.id(), total)); };
  if (b.at(b.visited()).op == opcode::divide) {
    b.give(m.source, (y * (dy - spread(sum_of(y * dy)))).id());
  } else {
    const term share = spread(sum_of(dy) / b.as_term(m.sum));
    b.give(m.source, (dy - b.as_term(m.exponential) * share).id());
  }
  return true;
}

}  // namespace gspmd::detail
