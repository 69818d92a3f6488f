// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/form_prices.hpp"
#include "gspmd/detail/passes/choose/partial_rule.hpp"

/// Sums of what several operators make. One movement or reduction does for all terms, so each of them pays its part of it:
///     dx = einsum<"bf,df->bd">(dq, wq) + einsum<"bf,df->bd">(dk, wk) + ...      f split over x: dx is partial, and reduced once
namespace gspmd::detail {

/// The terms that are moved and reduced together.
struct shared_sum {
  int open = 0;                    // terms that are not chosen yet
  inline_vec<sharding, 4> chosen;  // how the others lie

  /// The part of `amount` that one more term pays, if it lies like that.
  [[nodiscard]] constexpr std::int64_t part_of(std::int64_t amount, const sharding& term) const {
    for (const auto& other : chosen)
      if (other == term) return 0;
    return amount / (1 + open);
  }
};

namespace shared_sums {
inline constexpr int most_steps = 16;  // a chain of adds may be as long as the program

constexpr bool is_sum_of_two(const node& n) {
  return n.operands.count == 2 && n.operands[0] != n.operands[1] && facts_of(n.op).uniform &&
         partial_rule_of(n, 0, monoid::add) == partial_rule::all && partial_rule_of(n, 1, monoid::add) == partial_rule::all;
}
/// The operand of an elementwise operator whose sum may be added up after it as well, nothing else being sent for it: of a scaling by a
/// constant, say; -1: none.
constexpr int scaled_operand(const form_prices& known, const node& n) {
  int scaled = -1;
  for (int k = 0; k < n.operands.count; ++k) {
    const node& o = known.at(n.operands[k]);
    const auto& facts = facts_of(o.op);
    if (facts.made == origin::source || facts.is_made_again(o)) continue;
    if (scaled >= 0 || partial_rule_of(n, k, monoid::add) != partial_rule::any) return -1;
    scaled = k;
  }
  return scaled;
}
/// Adds what node `i`, the other term of a sum, brings; false if it is no such sum.
constexpr bool add_terms_of(const form_prices& known, int i, shared_sum& sum, int& steps) {
  if (++steps > most_steps || known.readers_of(i).size() != 1) return false;
  const form_book& book = known.book;
  if (book.has_forms(i)) {
    if (book.first_of(i) != book.last_of(i)) return false;
    if (sum.chosen.count < sum.chosen.capacity) sum.chosen.push_back(book.layout_of(book.first_of(i)));
    return true;
  }
  const node& n = known.at(i);
  if (book.defers(n)) return add_terms_of(known, n.operands[0], sum, steps);
  if (facts_of(n.op).made != origin::shards || n.operands.count == 0) return false;
  if (is_sum_of_two(n)) return add_terms_of(known, n.operands[0], sum, steps) && add_terms_of(known, n.operands[1], sum, steps);
  if (facts_of(n.op).uniform) {
    const int k = scaled_operand(known, n);
    return k >= 0 && add_terms_of(known, n.operands[k], sum, steps);
  }
  op_rule rule;
  rule_of(known.program, n, rule);
  bool may_be_partial = false;
  for (int f = 0; f < rule.factors.count; ++f) may_be_partial = may_be_partial || rule.leaves_partial(f);
  if (!may_be_partial || rule.reduced_by != monoid::add) return false;
  ++sum.open;
  return true;
}
}  // namespace shared_sums

/// The terms with which the result of node `i` is moved and reduced, if they lie like it.
constexpr shared_sum shared_sum_of(const form_prices& known, int i) {
  shared_sum sum;
  for (int steps = 0; steps < shared_sums::most_steps && known.readers_of(i).size() == 1; ++steps) {
    const int reader = known.readers_of(i)[0];
    const node& n = known.at(reader);
    if (reader == i || !facts_of(n.op).uniform) break;
    if (known.book.defers(n)) {
      i = reader;
      continue;
    }
    if (shared_sums::is_sum_of_two(n)) {
      shared_sum with = sum;
      if (!shared_sums::add_terms_of(known, n.operands[n.operands[0] == i ? 1 : 0], with, steps)) break;
      sum = with;
    } else if (const int k = shared_sums::scaled_operand(known, n); k < 0 || n.operands[k] != i) {
      break;
    }
    i = reader;
  }
  return sum;
}

}  // namespace gspmd::detail
