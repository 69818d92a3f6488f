// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/loop_sums.hpp"
#include "gspmd/detail/passes/choose/ring_choice.hpp"
#include "gspmd/detail/passes/choose/shared_sums.hpp"
#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Caches the prices of bringing one tensor of an operator from or to a sharding. The proposals for an operator
/// outnumber the shardings that they require for a tensor, and a price takes thousands of steps.
class known_prices {
 public:
  /// Returns the price of `s`. Calls `find()` if the price is not cached.
  template <class Find>
  constexpr reshard_price of(const sharding& s, Find find) {
    std::uint64_t key = s.partial;  // two shardings rarely share a key, so few comparisons are made
    for (int i = 0; i < s.splits.count; ++i)
      key = 1021 * key + static_cast<std::uint64_t>(32 * s.splits.items[i].axis + s.splits.items[i].dim + 1);
    const entry* const end = entries_.end();
    for (const entry* e = entries_.begin(); e != end; ++e)
      if (e->key == key && e->layout == s) return e->price;
    entries_.push_back({key, s, find()});
    return entries_.back().price;
  }
  [[nodiscard]] constexpr int count() const { return static_cast<int>(entries_.size()); }

 private:
  struct entry {
    std::uint64_t key = 0;
    sharding layout;
    reshard_price price;
  };
  vec<entry> entries_;
};

/// Computes the costs of ways to run the operator of node `i`.
class operator_prices {
 public:
  constexpr operator_prices(const form_prices& known, int i, const node& n, const op_rule& rule)
      : known_(known), i_(i), n_(n), rule_(rule), sum_(sum_of_loop(known, i)), shared_(shared_sum_of(known, i)) {
    for (const int o : n.operands) is_any_kept_ = is_any_kept_ || known.at(o).keep_split || known.at(o).keep_partial;
    for (int k = 0; k < n.operands.count; ++k) brought_for_.push_back(readers_alike(known, i, k));
    if (is_any_kept_) held_ = held_partial(known, i);
  }

  /// Returns the cost of bringing the operands to their required shardings, of the operator's own communication, and of
  /// bringing the result to its sharding. Counts all iterations of the loops around the operator. An operand from
  /// outside a loop is brought before the loop. If the cost exceeds `limit`, returns a part of the cost that exceeds
  /// `limit`.
  constexpr cost of(const operator_use& p, std::int64_t limit) {
    count_planning();
    const int depth = known_.book.depth();
    cost total;
    int goes_round = -1;
    if (gather_limit_of(known_.request, n_) >= 0) {
      const auto round = ring_choice(known_, n_, p).find();
      goes_round = round.how.operand;
      total.bytes = known_.in_all_trips(round.price.bytes, depth);
      total.time = known_.time_in_all_trips(round.price.time, depth);
      total.refused += round.how.beyond_limit ? 1 : 0;
    }
    if (is_any_kept_)
      for (int k = 0; k < n_.operands.count; ++k)
        if (goes_round != k && breaks_policy(known_, n_, k, p.wanted[k], held_[k])) ++total.refused;
    for (int k = 0; k < n_.operands.count && total.time <= limit; ++k)
      if (goes_round != k && !known_.is_again(n_, k, &p.wanted))
        add(total, of_operand(k, p.wanted[k]), known_.level_of(n_.operands[k]));
    if (n_.forbid_reshard && total.bytes > 0) ++total.refused;
    for (int k = movements_of(n_, p.moved); k-- > 0 && total.time <= limit;) {
      const auto traffic = traffic_of(known_.program, known_.mesh, n_, k, p.wanted[k], p.result);
      add(total, price_of_traffic(traffic, bytes_of(n_.type)), depth);
    }
    for (int k = facts_of(n_.op).tiles(n_); k-- > 0 && total.time <= limit;) add(total, of_tile(k, p.wanted[k]), depth);
    if (total.time <= limit) add(total, of_steps(p), depth);
    if (total.time <= limit) add(total, of_result(p.result), level_of_result(p.result));
    for (int r = 1; r < n_.results && total.time <= limit; ++r)
      add(total, price_of(i_ + r, further_result(known_.mesh, rule_, p.uses, r)), depth);
    return total;
  }
  /// Returns the price of the operator's own communication in one iteration, without bringing operands and results.
  [[nodiscard]] constexpr reshard_price own(const operator_use& p) const {
    reshard_price total;
    const auto take = [&](const reshard_price& price) {
      total.time = add_times(total.time, price.time);
      total.bytes += price.bytes;
    };
    if (gather_limit_of(known_.request, n_) >= 0) take(ring_choice(known_, n_, p).find().price);
    for (int k = movements_of(n_, p.moved); k-- > 0;)
      take(price_of_traffic(traffic_of(known_.program, known_.mesh, n_, k, p.wanted[k], p.result), bytes_of(n_.type)));
    for (int k = facts_of(n_.op).tiles(n_); k-- > 0;) take(of_tile(k, p.wanted[k]));
    take(of_steps(p));
    return total;
  }
  [[nodiscard]] constexpr int made() const {
    int count = result_.count();
    for (const auto& operand : operands_) count += operand.count();
    return count;
  }

 private:
  template <class Traffic>
  [[nodiscard]] constexpr reshard_price price_of_traffic(const Traffic& traffic, std::int64_t elem_bytes) const {
    const auto bytes = traffic.elems() * elem_bytes;
    return {time_of_collective(known_.mesh, known_.net(), collective_kind::collective_permute, traffic.axes, bytes), bytes,
            static_cast<int>(traffic.messages)};
  }
  constexpr void add(cost& total, const reshard_price& price, int level) const {
    if (price.bytes != 0) {
      total.time = add_times(total.time, known_.time_in_all_trips(price.time, level));
      total.bytes += known_.in_all_trips(price.bytes, level);
    }
    total.messages += price.messages;
  }
  constexpr reshard_price of_operand(int k, const sharding& wanted) {
    return operands_[k].of(wanted, [&] {
      reshard_price price = known_.best_form(n_.operands[k], wanted).price;
      price.time /= brought_for_[k];
      price.bytes /= brought_for_[k];
      return price;
    });
  }
  /// Returns the price of the halos in the tiles of an operand.
  [[nodiscard]] constexpr reshard_price of_tile(int k, const sharding& s) const {
    const extents& from = known_.shape_of(n_.operands[k]);
    const index_map map = needed_tile(known_.program, known_.mesh, n_, k, from, s);
    if (map.dims.empty()) return {};
    const auto traffic = traffic_of_tiles(known_.mesh, from, s, map);
    return price_of_traffic(traffic, bytes_of(known_.at(n_.operands[k]).type));
  }
  /// Returns the price of the collectives among the operator's own steps.
  [[nodiscard]] constexpr reshard_price of_steps(const operator_use& p) const {
    reshard_price total;
    if (!facts_of(n_.op).has_collectives) return total;
    for (const auto& c : facts_of(n_.op).sends(known_.program, known_.mesh, n_, p.wanted[0])) {
      total.time = add_times(total.time, time_of_collective(known_.mesh, known_.net(), c.what, c.axes, c.bytes));
      total.bytes = saturating_add(total.bytes, c.bytes);
      total.messages += c.bytes != 0 ? 1 : 0;
    }
    return total;
  }
  constexpr reshard_price of_result(const sharding& made) {
    return result_.of(made, [&] {
      reshard_price price = price_of(i_, made);
      price.time = shared_.part_of(price.time, made);
      price.bytes = shared_.part_of(price.bytes, made);
      return price;
    });
  }
  [[nodiscard]] constexpr reshard_price price_of(int i, sharding made) const {
    if (!known_.is_read(i)) return {};
    if (known_.at(i).keep_partial || known_.preferred_of(i).partial != 0)
      made.partial = 0;  // the user that needs the sum pays for it, see plan_search
    sharding wanted = known_.wanted_of(i);
    wanted.partial = 0;
    const auto on = [&](const mesh_shape& mesh) {
      return price_of_reshard(mesh, known_.net(), known_.shape_of(i), made, wanted, bytes_of(known_.at(i).type));
    };
    return known_.has_hidden_axes(i) ? on(known_.mesh_of(i)) : on(known_.mesh);
  }

  /// Returns the number of open bodies around the reduction of the result. If the result stays partial in a loop, it is
  /// reduced after the loop, see choose_with_sums.
  [[nodiscard]] constexpr int level_of_result(const sharding& made) const {
    int level = known_.book.depth();
    if (sum_.carry < 0 || made.partial == 0 || made.reduced_by != monoid::add || made.splits != sum_.splits) return level;
    while (known_.book.open[--level] != known_.at(sum_.carry).region) {
    }
    return level;
  }

  const form_prices& known_;
  int i_;
  const node& n_;
  const op_rule& rule_;
  loop_sum sum_;  // the loop's sum that the result is only added to
  shared_sum shared_;
  inline_vec<int, max_map_arity> brought_for_;  // by operand: the number of users that share its reshard
  known_prices operands_[max_map_arity];
  known_prices result_;
  bool is_any_kept_ = false;  // an operand has a policy of the program
  operand_shardings held_;
};

}  // namespace gspmd::detail
