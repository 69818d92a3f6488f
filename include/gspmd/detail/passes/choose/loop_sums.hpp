// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/form_prices.hpp"
#include "gspmd/detail/passes/choose/free_values.hpp"
#include "gspmd/detail/passes/choose/partial_rule.hpp"
#include "gspmd/detail/passes/choose/shared_sums.hpp"

/// Sums that a loop only adds to, starting at 0: gradients over microbatches, or over the rows of a scan. If the added
/// value is partial, the sum may stay partial. One reduction after the loop then replaces one reduction in each
/// iteration.
///
///   g = 0;  for ...: g = g + einsum<"bd,bf->df">(x, dy)      b split over x: g is partial over x until the loop has
///                                                            ended
namespace gspmd::detail {

/// Returns the number of the operand that is added to operand `k`, to the whole operand or to a row. Returns -1 for any
/// other operator.
constexpr int operand_added_to(const node& n, int k) {
  int added = -1;
  if (n.operands.count < 2 || partial_rule_of(n, k, monoid::add) != partial_rule::all) return -1;
  if (partial_rule_of(n, k, monoid::max) == partial_rule::all) return -1;  // a write, no addition
  for (int o = 0; o < n.operands.count; ++o) {
    if (o == k || partial_rule_of(n, o, monoid::add) != partial_rule::all) continue;
    if (added >= 0) return -1;
    added = o;
  }
  return added;
}

/// A sum that a loop only adds to, once or several times in an iteration: its carry node, and the operand of a node
/// that is the sum.
struct summed_up {
  int carry = -1, operand = -1;
};
/// Returns the sum that node `i` adds to, in the loop around node `i`. Nothing else may read the sum: g = (g + a) + b.
/// Returns a carry of -1 otherwise.
constexpr summed_up summed_up_by(const graph& g, const value_uses& uses, int i) {
  constexpr int most_in_a_row = 4;
  const auto at = [&g](int k) -> const node& { return g.nodes[static_cast<std::size_t>(k)]; };
  const int region = at(i).region;
  if (region < 0) return {};
  int carry = -1;
  for (int k = i, steps = 0; carry < 0; ++steps) {
    if (steps == most_in_a_row || at(k).region != region || at(k).operands.count < 2 || uses.readers(k).size() != 1) return {};
    const int reader = uses.readers(k)[0];
    if (at(reader).op != opcode::loop_result) k = reader;
    else if (at(reader).operands[1] == k) carry = at(reader).operands[0];
    else return {};
  }
  if (at(carry).region != region || uses.readers(carry).size() != 2 || !is_zero(at(at(carry).operands[0]))) return {};
  for (int sum = carry, steps = 0; steps < most_in_a_row; ++steps) {
    const auto readers = uses.readers(sum);
    const int k = readers[at(readers[0]).op == opcode::loop_result ? readers.size() - 1 : 0];
    const node& n = at(k);
    if (n.op == opcode::loop_result || (sum != carry && readers.size() != 1)) return {};
    const int operand = n.operands.count > 0 && n.operands[0] == sum ? 0 : 1;
    const int added = n.region == region && n.operands.count > 1 ? operand_added_to(n, operand) : -1;
    if (added < 0 || uses.readers(n.operands[added]).size() != 1) return {};
    if (k == i) return {carry, operand};
    sum = k;
  }
  return {};
}
constexpr int operand_summed_up(const graph& g, const value_uses& uses, int i) { return summed_up_by(g, uses, i).operand; }

/// Returns the number of the operand that a conditional's result has in one branch, if the other branch gives 0.
/// Returns -1 otherwise.
constexpr int operand_or_zero(const graph& g, const node& n) {
  if (n.op != opcode::cond_result || is_zero(operand_of(g, n, 1)) == is_zero(operand_of(g, n, 2))) return -1;
  return is_zero(operand_of(g, n, 1)) ? 2 : 1;
}

/// Returns the splits of the value that node `i` adds to operand `k`, if operand `k` has the splits `splits`.
constexpr inline_vec<axis_use, max_axes> splits_of_added(const graph& g, const mesh_shape& mesh, int i, int k,
                                                         const inline_vec<axis_use, max_axes>& splits) {
  const node& n = g.nodes[static_cast<std::size_t>(i)];
  op_rule rule;
  rule_of(g, n, rule);
  return carried(mesh, rule, rule.operand(k), splits, rule.operand(operand_added_to(n, k)));
}

/// A sum that a value is added to, and the splits of the value that match the splits of the sum.
struct loop_sum {
  int carry = -1;
  inline_vec<axis_use, max_axes> splits;
};
/// Returns the sum of a loop that the value of node `i` is added to, if the value has no other purpose. Linear
/// elementwise operators, other terms and a conditional with 0 may come between. If node `i` itself adds to a sum, this
/// is that sum. If the value is added to several sums, returns the last one. Returns a carry of -1 if no sum qualifies.
/// `term`: the operand that the recursion started from.
constexpr loop_sum sum_of_loop(const form_prices& known, int i, int term = -1, std::size_t steps = shared_sums::most_steps) {
  if (known.book.open.empty() || steps == 0) return {};
  const node& n = known.at(i);
  if (const auto [carry, k] = summed_up_by(known.program, known.uses, i); k >= 0) {
    if (!known.book.has_forms(carry)) return {};  // an inner loop that is not planned yet
    const auto& splits = known.book.layout_of(known.book.first_of(carry)).splits;
    if (term < 0) return {carry, splits};
    if (n.operands[operand_added_to(n, k)] != term) return {};
    return {carry, splits_of_added(known.program, known.mesh, i, k, splits)};
  }
  if (n.op == opcode::cond_result) {
    const int k = operand_or_zero(known.program, n);
    if (k < 0 || (term >= 0 && n.operands[k] != term)) return {};
  } else if (term >= 0) {
    int at = 0;
    while (n.operands[at] != term) ++at;
    const bool is_scaled = partial_rule_of(n, at, monoid::add) == partial_rule::any;
    if (!facts_of(n.op).uniform || (!shared_sums::is_sum_of_two(n) && !is_scaled)) return {};
    for (int k = at + 1; k < n.operands.count; ++k)
      if (n.operands[k] == term) return {};
  }
  loop_sum found;
  const auto readers = known.readers_of(i);
  for (std::size_t k = 0; k < readers.size() && (k == 0 || found.carry >= 0); ++k)  // a reader equal to `i` is an output
    found = readers[k] == i ? loop_sum{} : sum_of_loop(known, readers[k], i, (steps - 1) / readers.size());
  return found;
}

}  // namespace gspmd::detail
