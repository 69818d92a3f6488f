// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/form_prices.hpp"
#include "gspmd/detail/passes/choose/partial_rule.hpp"

/// Sums that a loop only adds to, from 0 on: gradients over microbatches. What is added may stay partial, and the sum with it; one
/// reduction after the loop does, where every trip would make its own.
///     g = 0;  for ...: g = g + einsum<"bd,bf->df">(x, dy)      b split over x: g is partial over x until the loop has ended
namespace gspmd::detail {

/// The operand of node `i` that is such a sum, of the innermost open loop; -1: none is.
constexpr int operand_summed_up(const form_prices& known, int i) {
  const node& n = known.at(i);
  const auto readers = [&known](int v) { return known.readers_of(v).size(); };
  if (known.book.open.empty() || n.operands.count != 2 || readers(i) != 1) return -1;
  const node& reader = known.at(known.readers_of(i)[0]);
  for (int k = 0; k < 2; ++k) {
    if (partial_rule_of(n, k, monoid::add) != partial_rule::all) continue;
    const int carry = n.operands[k];
    const node& c = known.at(carry);
    if (c.op != opcode::carry || c.region != known.book.open.back()) continue;
    if (readers(carry) != 2 || readers(n.operands[1 - k]) != 1) continue;
    if (reader.op != opcode::loop_result || reader.operands[0] != carry || reader.operands[1] != i) continue;
    if (is_zero(known.at(c.operands[0]))) return k;
  }
  return -1;
}

/// The sum that the value of node `i` is added to and used for nothing else, at once or after elementwise operators that are linear in it;
/// -1: none.
constexpr int sum_of_loop(const form_prices& known, int i) {
  if (known.book.open.empty()) return -1;
  for (;;) {
    if (known.readers_of(i).size() != 1) return -1;
    const int reader = known.readers_of(i)[0];
    if (reader == i) return -1;  // an output
    const node& n = known.at(reader);
    if (const int k = operand_summed_up(known, reader); k >= 0) return n.operands[k];
    if (!facts_of(n.op).uniform) return -1;
    int at = 0;
    while (n.operands[at] != i) ++at;
    if (partial_rule_of(n, at, monoid::add) != partial_rule::any) return -1;
    for (int k = at + 1; k < n.operands.count; ++k)
      if (n.operands[k] == i) return -1;
    i = reader;
  }
}

}  // namespace gspmd::detail
