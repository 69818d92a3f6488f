// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/form_prices.hpp"
#include "gspmd/detail/passes/choose/partial_rule.hpp"

/// Sums of the results of several operators. One movement or reduction serves all terms, so each term pays a share of
/// its price:
///
///   dx = einsum<"bf,df->bd">(dq, wq) + einsum<"bf,df->bd">(dk, wk) + ...      f split over x: dx is partial, and
///                                                                             reduced once
///
/// The same holds if each term is first reshaped to the shape of the sum, because the reduction can wait for the
/// reshape too.
namespace gspmd::detail {

/// The terms that are moved and reduced together.
struct shared_sum {
  int open = 0;                    // terms that are not chosen yet
  inline_vec<sharding, 4> chosen;  // the shardings of the chosen terms

  /// Returns the share of `amount` that one more term pays if it has the sharding `term`. The share is 0 if a chosen
  /// term has this sharding.
  [[nodiscard]] constexpr std::int64_t part_of(std::int64_t amount, const sharding& term) const {
    for (const auto& other : chosen)
      if (other == term) return 0;
    return amount / (1 + open);
  }
};

namespace shared_sums {
inline constexpr int most_steps = 16;  // a chain of additions may be as long as the program

constexpr bool is_sum_of_two(const node& n) {
  return n.operands.count == 2 && n.operands[0] != n.operands[1] && facts_of(n.op).uniform &&
         partial_rule_of(n, 0, monoid::add) == partial_rule::all && partial_rule_of(n, 1, monoid::add) == partial_rule::all;
}
/// Returns the number of the operand of an elementwise operator that may be reduced after the operator without more
/// communication. An example is scaling by a constant. Returns -1 if no operand qualifies.
constexpr int scaled_operand(const graph& g, const node& n) {
  int scaled = -1;
  for (int k = 0; k < n.operands.count; ++k) {
    const node& o = operand_of(g, n, k);
    const auto& facts = facts_of(o.op);
    if (facts.made == origin::source || facts.is_made_again(o)) continue;
    if (scaled >= 0 || partial_rule_of(n, k, monoid::add) != partial_rule::any) return -1;
    scaled = k;
  }
  return scaled;
}
constexpr bool is_view(const node& n) { return facts_of(n.op).runs == realisation::alias && n.operands.count == 1; }

/// Adds the terms of node `i`, the other operand of a sum, to `sum`. `shape` is the shape of the sum. Returns false if
/// node `i` has no terms to share with.
constexpr bool add_terms_of(const form_prices& known, int i, const extents& shape, shared_sum& sum, int& steps) {
  if (++steps > most_steps || known.readers_of(i).size() != 1) return false;
  const form_book& book = known.book;
  const node& n = known.at(i);
  const bool is_seen_through = n.shape != shape && (is_view(n) || facts_of(n.op).uniform);
  if (book.has_forms(i) && !is_seen_through) {  // layouts are compared only if the terms have the same dims
    if (book.first_of(i) != book.last_of(i)) return false;
    if (n.shape == shape && sum.chosen.count < sum.chosen.capacity) sum.chosen.push_back(book.layout_of(book.first_of(i)));
    return true;
  }
  if (book.defers(n) || is_view(n)) return add_terms_of(known, n.operands[0], shape, sum, steps);
  if (facts_of(n.op).made != origin::shards || n.operands.count == 0) return false;
  if (is_sum_of_two(n))
    return add_terms_of(known, n.operands[0], shape, sum, steps) && add_terms_of(known, n.operands[1], shape, sum, steps);
  if (facts_of(n.op).uniform) {
    const int k = scaled_operand(known.program, n);
    return k >= 0 && add_terms_of(known, n.operands[k], shape, sum, steps);
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

/// Returns the terms that are moved and reduced together with the result of node `i`, if their shardings are equal.
constexpr shared_sum shared_sum_of(const form_prices& known, int i) {
  shared_sum sum;
  const extents& shape = known.shape_of(i);
  for (int steps = 0; steps < shared_sums::most_steps && known.readers_of(i).size() == 1; ++steps) {
    const int reader = known.readers_of(i)[0];
    const node& n = known.at(reader);
    if (reader == i || (!facts_of(n.op).uniform && !shared_sums::is_view(n))) break;
    if (known.book.defers(n) || shared_sums::is_view(n)) {
      i = reader;
      continue;
    }
    if (shared_sums::is_sum_of_two(n)) {
      shared_sum with = sum;
      if (!shared_sums::add_terms_of(known, n.operands[n.operands[0] == i ? 1 : 0], shape, with, steps)) break;
      sum = with;
    } else if (const int k = shared_sums::scaled_operand(known.program, n); k < 0 || n.operands[k] != i) {
      break;
    }
    i = reader;
  }
  return sum;
}

/// Returns the number of users that need operand `k` of node `i` in the same sharding: node `i`, and later nodes with
/// the same operator, attributes and preferred shardings. One reshard serves all these users, so each user pays a
/// share:
///
///   q = einsum<"bsm,mnd->bsnd">(x, wq), k = einsum<"bsm,mnd->bsnd">(x, wk), ...      x may be gathered for all, or
///                                                                                    each weight
constexpr int readers_alike(const form_prices& known, int i, int k) {
  const node& n = known.at(i);
  const auto readers = known.readers_of(n.operands[k]);  // a value can have hundreds of users
  if (readers.size() < 2 || readers.size() > 16 || n.operands.count < 2 || facts_of(n.op).uniform) return 1;
  int count = 1;
  for (const int r : readers) {
    const node& other = known.at(r);
    if (r <= i || other.op != n.op || other.region != n.region || other.operands.count != n.operands.count) continue;
    bool is_alike =
        other.operands[k] == n.operands[k] && other.attributes == n.attributes && known.preferred_of(r) == known.preferred_of(i);
    for (int p = 0; p < n.operands.count && is_alike; ++p)
      is_alike = known.preferred_of(other.operands[p]) == known.preferred_of(n.operands[p]);
    count += is_alike ? 1 : 0;
  }
  return count;
}

}  // namespace gspmd::detail
