// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/choose/known_prices.hpp"
#include "gspmd/detail/passes/choose/window_choice.hpp"

namespace gspmd::detail {

/// Which use of the mesh axes an operator gets: the one that sends the fewest bytes for its operands, its result and what later
/// readers will ask for.
class use_choice : public window_choice {
 public:
  using window_choice::window_choice;

 protected:
  /// A sharding that a later reader of operand `k` will ask for, and what it would have to send for it.
  struct later_wish {
    int operand = 0;
    sharding wanted;
    std::int64_t bytes = 0;
  };

  /// Of the tensors of one operator: what bringing them to what it needs sends, and its result to its sharding.
  struct operator_prices {
    known_prices operands[max_map_arity];
    known_prices result;
  };
  /// The price of a way that sends at most `limit` bytes, if one is found; else the known one. Only where shards have padding is
  /// there anything to find.
  constexpr reshard_price settle(known_prices::entry& known, const extents& shape, const sharding& from, const sharding& to,
                                 dtype type, std::int64_t limit) {
    const auto elem_bytes = bytes_of(type);
    auto least = known.price.bytes / elem_bytes;
    if (limit / elem_bytes < least) least = limit / elem_bytes + 1;
    if (least <= known.proven || may_search_ <= 0) return known.price;
    known.proven = least;
    if (!may_beat_plain_way(mesh_, shape, from, to)) return known.price;
    const auto cost = cost_below(mesh_, shape, from, to, path_cost{least, known.price.messages}, may_search_);
    if (cost.elems < least) known.price = {cost.elems * elem_bytes, cost.messages};
    known.proven = cost.elems;
    return known.price;
  }
  constexpr reshard_price price_of_operand(operator_prices& known, const node& n, int k, const sharding& wanted,
                                           std::int64_t limit) {
    const int o = n.operands[k];
    auto& price = known.operands[k].of(wanted, [&](known_prices::entry& e) {
      const auto form = best_form(o, wanted);
      e.from = form.value < 0 ? wanted : program.value(form.value).layout;
      e.price = form.price;
    });
    return settle(price, shape_of(o), price.from, wanted, at(o).type, limit);
  }
  constexpr reshard_price price_of_result(operator_prices& known, int i, const node& n, const sharding& made,
                                          std::int64_t limit) {
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    auto& price = known.result.of(
        made, [&](known_prices::entry& e) { e.price = price_of_reshard(mesh_, n.shape, made, wanted, bytes_of(n.type)); });
    return settle(price, n.shape, made, wanted, n.type, limit);
  }

  /// True when a value is sure to be brought to the sharding that completion found: an output, or what is computed with it has
  /// the same one.
  [[nodiscard]] constexpr bool is_kept(int i) const {
    for (const int reader : readers_[static_cast<std::size_t>(i)]) {
      if (reader == i) return true;
      const auto& user = graph_.nodes[static_cast<std::size_t>(reader)];
      if (facts_of(user.op).uniform && completed_of(reader).splits == completed_of(i).splits) return true;
    }
    return false;
  }

  /// True when operand `k` stands before: it is moved once, unless `p` wants it in two shardings.
  [[nodiscard]] constexpr bool is_again(const node& n, int k, const use_plan* p = nullptr) const {
    for (int o = 0; o < k; ++o)
      if (root_of(n.operands[o]) == root_of(n.operands[k]) && (p == nullptr || same_layout(p->wanted[o], p->wanted[k])))
        return true;
    return false;
  }

  /// `bytes` that are sent in the open bodies at `level`, in all trips of the loops around it.
  [[nodiscard]] constexpr std::int64_t in_all_trips(std::int64_t bytes, int level) const {
    for (int k = 0; k < level; ++k) {
      const node& start = at(open_[static_cast<std::size_t>(k)]);
      if (start.op == opcode::loop && start.integer > 1) bytes = saturating_multiply(bytes, start.integer);
    }
    return bytes < most_bytes ? bytes : most_bytes;
  }
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 56;  // so many can be added up

  /// A sharding that elementwise readers of a value, or an output, will ask for.
  struct reader_wish {
    sharding wanted;
    int last = 0;  // node that asks for it
  };
  /// Those of value `o`. Found once: a value may have as many readers as the program has operators.
  [[nodiscard]] constexpr const vec<reader_wish>& wishes_for(int o) {
    if (wishes_at_.empty()) wishes_at_.resize(graph_.nodes.size(), -1);
    int& known_at = wishes_at_[o];
    if (known_at >= 0) return wishes_[known_at];
    known_at = static_cast<int>(wishes_.size());
    vec<reader_wish> found;
    const auto elem_bytes = bytes_of(at(o).type);
    for (const int reader : readers_[static_cast<std::size_t>(o)]) {  // the last one first
      const node& user = at(reader);
      if (!facts_of(user.op).uniform || !is_kept(reader)) continue;
      if (bytes_of(user.type) < elem_bytes) continue;  // moves its result
      reader_wish wish{{}, reader == o ? static_cast<int>(graph_.nodes.size()) : reader};
      wish.wanted.splits = completed_of(reader).splits;
      bool is_known = false;
      for (const auto& other : found) is_known = is_known || same_layout(other.wanted, wish.wanted);
      if (!is_known) found.push_back(wish);
    }
    wishes_.push_back(std::move(found));
    return wishes_.back();
  }

  /// What elementwise readers after `i`, and outputs, want of its operands: a form that serves them too is worth more.
  [[nodiscard]] constexpr std::vector<later_wish> later_wishes(int i, const node& n) {
    std::vector<later_wish> wishes;
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      if (is_again(n, k) || readers_[static_cast<std::size_t>(o)].size() < 2 || forms_of(o).empty()) continue;
      for (const auto& wish : wishes_for(o)) {
        if (wish.last <= i) continue;
        const auto bytes = in_all_trips(best_form(o, wish.wanted).price.bytes, level_of(o));
        if (bytes > 0) wishes.push_back(later_wish{k, wish.wanted, bytes});
      }
    }
    return wishes;
  }

  /// What the form that operand `k` is brought to saves the later readers: of those, the one that gains most.
  [[nodiscard]] constexpr std::int64_t saved(const node& n, const use_plan& p, const std::vector<later_wish>& wishes) const {
    std::int64_t total = 0;
    int operand = -1;
    std::int64_t most = 0;
    for (const auto& wish : wishes) {
      if (wish.operand != operand) {
        total += most;
        most = 0;
        operand = wish.operand;
      }
      const auto& form = p.wanted[operand];
      if ((wish.wanted.partial & ~form.partial) != 0) continue;
      const int o = n.operands[operand];
      const auto bytes = bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type);
      const auto then = in_all_trips(reshard_bytes(mesh_, shape_of(o), form, wish.wanted, bytes), level_of(o));
      if (wish.bytes - then > most) most = wish.bytes - then;
    }
    return total + most;
  }

  /// Between gathering the operands of a large product on every device and adding partial ones up: a device that computes
  /// 10^12 flops/s on a network of 30 GB/s. Small operators wait for the network, whatever they compute.
  static constexpr std::int64_t flops_per_byte = 32;
  static constexpr std::int64_t free_flops = std::int64_t{1} << 20;
  [[nodiscard]] constexpr std::int64_t weight_of(std::int64_t products) const {
    return products <= free_flops / 2 ? 0 : in_all_trips((products - free_flops / 2) / (flops_per_byte / 2), depth());
  }

  /// The use of every mesh axis by a factor of the rule that sends the fewest bytes; then by the fewest collectives, with the
  /// smallest shards, as the result and then the operands ask for it.
  [[nodiscard]] constexpr use_plan choose(int i, const node& n, const op_rule& rule) {
    const auto held = held_partial(n);
    use_search::wishes asked;  // the result's, then the operands'
    asked.push_back(to_factors(mesh_, rule, rule.result(), completed_of(i).splits));
    bool agree = true;
    for (int k = 0; k < n.operands.count; ++k) {
      asked.push_back(to_factors(mesh_, rule, rule.operand(k), completed_of(n.operands[k]).splits));
      if (rule.uniform) agree = agree && asked[k + 1] == asked[0];
    }
    if (rule.uniform && agree) return plan_of(n, rule, asked[0], held);

    use_search::axis_factors first(mesh_.axis_count(), std::int8_t{-1});
    for (int t = asked.count - 1; t >= 0; --t)
      for (const auto& use : asked[t])
        if (rule.factors[use.dim].kind != factor_kind::gathered) first[use.axis] = use.dim;
    use_search search(mesh_, rule, asked);
    use_plan best = plan_of(n, rule, search.assemble(first), held);
    operator_prices known;
    const int searched_before = may_search_;
    auto best_bytes = cost_of(known, i, n, best);
    if (best_bytes == 0) return best;
    // A plan that would be refused for the whole copies it makes (see silent_replication): only if nothing else is possible.
    std::uint32_t held_fast = 0;  // by operand: the axes that split it must go on to do so
    if (!graph_.allow_replication && !n.allow_replication)
      for (int k = 0; k < n.operands.count; ++k)
        if (must_lose_a_split(n, rule, k)) held_fast |= std::uint32_t{1} << k;
    const auto refusal_of = [&](const use_plan& p) {
      std::int64_t refused = 0;
      for (int k = 0; k < n.operands.count && held_fast != 0; ++k)
        if ((held_fast >> k & 1U) != 0 && (completed_of(n.operands[k]).split_axes() & ~p.wanted[k].split_axes()) != 0)
          refused = never;
      return refused;
    };
    best_bytes += refusal_of(best);
    search.know(tensors_of(i, n, rule));
    best_bytes += weight_of(search.work_of(best.uses));
    const auto wishes = later_wishes(i, n);
    std::int64_t most_saved = 0;
    for (const auto& wish : wishes) most_saved += wish.bytes;
    best_bytes += most_saved - saved(n, best, wishes);
    auto best_memory = search.memory_of(best.uses);
    search.run(best_bytes, [&](const factor_splits& uses, std::int64_t memory, std::int64_t limit) {
      if (uses == best.uses) return best_bytes;
      const use_plan trial = plan_of(n, rule, uses, held);
      auto bytes = weight_of(search.work_of(uses)) + refusal_of(trial);
      bytes += cost_of(known, i, n, trial, limit - bytes);
      if (bytes > limit) return bytes;
      bytes += most_saved - saved(n, trial, wishes);
      bool better = bytes < best_bytes;
      if (bytes == best_bytes) {
        const int more = messages_of(known, i, n, trial) - messages_of(known, i, n, best);
        better = more < 0 || (more == 0 && memory < best_memory);
      }
      if (better) {
        best = trial;
        best_bytes = bytes;
        best_memory = memory;
      }
      return bytes;
    });
    may_price_ -= (searched_before - may_search_) / 4 + known.result.count();
    for (int k = 0; k < n.operands.count; ++k) may_price_ -= known.operands[k].count();
    return best;
  }

  [[nodiscard]] constexpr use_search::use_tensors tensors_of(int i, const node& n, const op_rule& rule) const {
    use_search::use_tensors tensors;
    for (int k = 0; k <= n.operands.count; ++k) {
      const bool is_result = k == n.operands.count;
      const int o = is_result ? i : n.operands[k];
      const auto& forms = forms_of(o);
      use_tensor t;
      t.factor_of = use_search::axis_factors(mesh_.axis_count(), std::int8_t{-1});
      const auto know = [&](const sharding& s) {
        t.elems = local_elements(mesh_, shape_of(o), s);
        for (const auto& use : to_factors(mesh_, rule, is_result ? rule.result() : rule.operand(k), s.splits))
          t.factor_of[use.axis] = use.dim;
      };
      const bool again = !is_result && is_again(n, k);
      if (is_result || !forms.empty()) t.elem_bytes = bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type);
      if (is_result) know(completed_of(i));
      else if (forms.size() == 1 && !again && program.value(forms.front()).layout.partial == 0)
        know(program.value(forms.front()).layout);
      else t.elems = elements(shape_of(o));  // no bound
      tensors.push_back(t);
    }
    return tensors;
  }

  static constexpr std::int64_t never = std::int64_t{1} << 60;

  [[nodiscard]] constexpr int depth() const { return static_cast<int>(open_.size()); }

  /// What bringing the operands to what they must be sends, and bringing the result to its sharding: in all trips of the loops
  /// around it, but an operand from outside of a loop is brought there before it. Where this is more than `limit`, any sum of
  /// parts of it that is.
  [[nodiscard]] constexpr std::int64_t cost_of(operator_prices& known, int i, const node& n, const use_plan& p,
                                               std::int64_t limit = use_search::no_limit) {
    std::int64_t total = 0;
    const auto left_for = [&](int level) { return total > limit ? 0 : (limit - total) / in_all_trips(1, level); };
    int goes_round = -1;
    if (n.gather_limit >= 0) {
      const window round = window_of(n, p);
      goes_round = round.how.operand;
      total = in_all_trips(round.bytes, depth()) + (round.how.beyond_limit ? never : 0);
    }
    for (int k = 0; k < n.operands.count; ++k) {
      if (goes_round == k || is_again(n, k, &p)) continue;
      const int level = level_of(n.operands[k]);
      total += in_all_trips(price_of_operand(known, n, k, p.wanted[k], left_for(level)).bytes, level);
      if (total > limit) return total;
    }
    if (n.forbid_reshard && total > 0) total += never;  // only if nothing else is possible: then it is refused
    for (int k = facts_of(n.op).movements(n); k-- > 0 && total <= limit;)
      total += in_all_trips(traffic_of(graph_, mesh_, n, k, p.result).elems() * bytes_of(n.type), depth());
    if (total > limit) return total;
    return total + in_all_trips(price_of_result(known, i, n, p.result, left_for(depth())).bytes, depth());
  }

  /// How many collectives that takes, as far as it is known what they send: nothing is looked for (limit 0).
  [[nodiscard]] constexpr int messages_of(operator_prices& known, int i, const node& n, const use_plan& p) {
    int count = price_of_result(known, i, n, p.result, 0).messages;
    for (int k = 0; k < n.operands.count; ++k)
      if (!is_again(n, k, &p)) count += price_of_operand(known, n, k, p.wanted[k], 0).messages;
    for (int k = facts_of(n.op).movements(n); k-- > 0;)
      count += static_cast<int>(traffic_of(graph_, mesh_, n, k, p.result).messages);
    return count;
  }

 private:
  vec<int> wishes_at_;  // by node: its list in wishes_; -1: not known yet
  vec<vec<reader_wish>> wishes_;
};

}  // namespace gspmd::detail
