// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/passes/window_choice.hpp"

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

  /// What elementwise readers after `i`, and outputs, want of its operands: a form that serves them too is worth more.
  [[nodiscard]] constexpr std::vector<later_wish> later_wishes(int i, const node& n) const {
    std::vector<later_wish> wishes;
    for (int k = 0; k < n.operands.count; ++k) {
      const int o = n.operands[k];
      const auto& forms = forms_of(o);
      const auto& readers = readers_[static_cast<std::size_t>(o)];
      bool again = false;
      for (int other = 0; other < k; ++other) again = again || root_of(n.operands[other]) == root_of(o);
      if (again || readers.size() < 2 || forms.empty()) continue;
      const std::size_t first = wishes.size();
      for (const int reader : readers) {
        const node& user = graph_.nodes[static_cast<std::size_t>(reader)];
        if ((reader <= i && reader != o) || !facts_of(user.op).uniform || !is_kept(reader)) continue;
        later_wish wish;
        wish.operand = k;
        wish.wanted.splits = completed_of(reader).splits;
        bool known = false;
        for (std::size_t w = first; w < wishes.size(); ++w) known = known || same_layout(wishes[w].wanted, wish.wanted);
        if (known) continue;
        static_cast<void>(best_form(o, wish.wanted, wish.bytes));
        if (bytes_of(user.type) < bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type)) continue;  // moves its result
        if (wish.bytes > 0) wishes.push_back(wish);
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
      const auto then =
          reshard_bytes(mesh_, shape_of(o), form, wish.wanted, bytes_of(graph_.nodes[static_cast<std::size_t>(o)].type));
      if (wish.bytes - then > most) most = wish.bytes - then;
    }
    return total + most;
  }

  /// Between gathering the operands of a large product on every device and adding partial ones up: a device that computes
  /// 10^12 flops/s on a network of 30 GB/s. Small operators wait for the network, whatever they compute.
  static constexpr std::int64_t flops_per_byte = 32;
  static constexpr std::int64_t free_flops = std::int64_t{1} << 20;
  static constexpr std::int64_t weight_of(std::int64_t products) {
    return products <= free_flops / 2 ? 0 : (products - free_flops / 2) / (flops_per_byte / 2);
  }

  /// The use of every mesh axis by a factor of the rule that sends the fewest bytes; then by the fewest collectives, with the
  /// smallest shards, as the result and then the operands ask for it.
  [[nodiscard]] constexpr use_plan choose(int i, const node& n, const op_rule& rule) const {
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
    auto best_bytes = cost_of(i, n, best);
    if (best_bytes == 0) return best;
    search.know(tensors_of(i, n, rule));
    best_bytes += weight_of(search.work_of(best.uses));
    const auto wishes = later_wishes(i, n);
    std::int64_t most_saved = 0;
    for (const auto& wish : wishes) most_saved += wish.bytes;
    best_bytes += most_saved - saved(n, best, wishes);
    auto best_memory = search.memory_of(best.uses);
    search.run(best_bytes, [&](const factor_splits& uses, std::int64_t memory) {
      if (uses == best.uses) return best_bytes;
      const use_plan trial = plan_of(n, rule, uses, held);
      const auto bytes = cost_of(i, n, trial) + weight_of(search.work_of(uses)) + most_saved - saved(n, trial, wishes);
      bool better = bytes < best_bytes;
      if (bytes == best_bytes) {
        const int more = messages_of(i, n, trial) - messages_of(i, n, best);
        better = more < 0 || (more == 0 && memory < best_memory);
      }
      if (better) {
        best = trial;
        best_bytes = bytes;
        best_memory = memory;
      }
      return bytes;
    });
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
        t.elems = elements(local_extents(mesh_, shape_of(o), s));
        for (const auto& use : to_factors(mesh_, rule, is_result ? rule.result() : rule.operand(k), s.splits))
          t.factor_of[use.axis] = use.dim;
      };
      bool again = false;  // an operand that stands twice is moved once
      for (int other = 0; other < k && !is_result; ++other) again = again || root_of(n.operands[other]) == root_of(o);
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

  /// What bringing the operands to what they must be sends, and bringing the result to its sharding.
  [[nodiscard]] constexpr std::int64_t cost_of(int i, const node& n, const use_plan& p) const {
    std::int64_t total = 0;
    int goes_round = -1;
    if (n.gather_limit >= 0) {
      const window round = window_of(n, p);
      goes_round = round.how.operand;
      total = round.bytes + (round.how.beyond_limit ? never : 0);
    }
    for (int k = 0; k < n.operands.count; ++k) {
      bool again = false;
      if (goes_round == k) continue;
      for (int o = 0; o < k; ++o)
        again = again || (root_of(n.operands[o]) == root_of(n.operands[k]) && same_layout(p.wanted[o], p.wanted[k]));
      if (again) continue;
      std::int64_t bytes = 0;
      static_cast<void>(best_form(n.operands[k], p.wanted[k], bytes));
      total += bytes;
    }
    if (n.forbid_reshard && total > 0) total += never;  // only if nothing else is possible: then it is refused
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    return total + reshard_bytes(mesh_, n.shape, p.result, wanted, bytes_of(n.type));
  }

  /// How many collectives that takes.
  [[nodiscard]] constexpr int messages_of(int i, const node& n, const use_plan& p) const {
    int count = 0;
    const auto walk = [&](const extents& shape, sharding from, const sharding& to) {
      for (auto step = next_step(mesh_, shape, from, to); step.what != reshard_step::kind::none;
           step = next_step(mesh_, shape, from, to)) {
        if (step.what != reshard_step::kind::slice) ++count;
        from = step.to;
      }
    };
    for (int k = 0; k < n.operands.count; ++k) {
      std::int64_t bytes = 0;
      const int v = best_form(n.operands[k], p.wanted[k], bytes);
      if (v >= 0) walk(shape_of(n.operands[k]), program.value(v).layout, p.wanted[k]);
    }
    sharding wanted = completed_of(i);
    wanted.partial = 0;
    walk(n.shape, p.result, wanted);
    return count;
  }
};

}  // namespace gspmd::detail
