// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/passes/order/memory_use.hpp"
#include "gspmd/detail/passes/order/order_steps.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Orders the steps of an automatic program so that work runs concurrently with collectives (plan/overlap.hpp), before
/// memory is placed. XLA calls this latency hiding.
///
/// 1. Backwards through the steps: a collective is placed ahead of its first user by as much work as it takes time on
///    the network. It is never placed before its operands are computed. Weights are gathered ahead.
/// 2. Forwards: a user of a collective that is still in progress waits, with all users of its results, and other work
///    continues. Gradients are reduced while other gradients are computed, and updates follow.
///
/// All collectives share one network, so they run one after the other. None is started earlier than necessary, because
/// a started collective holds memory. Steps of loops and conditionals stay where they are; the steps between two of
/// them, a stretch, are ordered on their own. overlap_moves.hpp overlaps the margins of stencils, except margins as
/// wide as a shard, as used by the stages of a pipeline for their microbatches.
class collective_hider {
 public:
  /// `base`: by value, the value whose memory it shares.
  constexpr collective_hider(plan& p, span<const int> base, const network_rates& net)
      : plan_(p), view_(p), base_(base), net_(net), maker_(p.values.size(), -1), state_(p.values.size(), there) {}

  constexpr void run() {
    const int count = static_cast<int>(plan_.steps.size());
    for (int begin = 0; begin < count; begin = units_.back().end)
      units_.push_back({begin, end_of_unit(plan_.steps.data(), begin)});
    uses_.resize(units_.size(), 0);
    vec<int> order;
    const int units = static_cast<int>(units_.size());
    for (int end = 0; begin_ < units; begin_ = end) {
      vec<int> stretch;
      for (end = begin_; end < units && !stays(end); ++end) stretch.push_back(end);
      if (stretch.empty()) stretch.push_back(end++);
      else stretch = delayed(started_ahead(stretch));
      for (const int u : stretch)
        for (int i = units_[u].begin; i < units_[u].end; ++i) order.push_back(i);
    }
    for (const auto& s : plan_.steps)
      if (is_hidden(s)) plan_.nodes[s.node].is_started = true;
    put_in_order(plan_, span<const int>(order.data(), order.size()));
  }

 private:
  enum readiness : std::uint8_t { there, to_be_made, under_way };
  struct step_range {  // a unit: one step, or all steps of a run of row blocks
    int begin = 0, end = 0;
  };
  struct pending {
    int unit = 0;
    std::int64_t time = 0;  // picoseconds that are not hidden yet
  };

  /// Hides collectives by work that takes `time`: the collective at index `first`, then the next ones before `last`.
  /// When a collective is hidden, calls `end`, which increments `first`.
  // Defined before its callers: Clang instantiates no template in a class before it has read the template's body.
  template <class End>
  static constexpr void pass(std::int64_t time, vec<pending>& queue, const std::size_t& first, std::size_t last, End end) {
    while (time > 0 && first < last) {
      auto& left = queue[first].time;
      const auto hidden = left < time ? left : time;
      time -= hidden;
      left -= hidden;
      if (left == 0) end();
    }
  }
  [[nodiscard]] constexpr const plan_step& first(int unit) const { return plan_.steps[units_[unit].begin]; }
  [[nodiscard]] constexpr bool stays(int unit) const {
    return !goes_by_rows(first(unit)) && facts_of(first(unit)).role >= step_role::hands_on;
  }
  [[nodiscard]] constexpr int base_of(int value) const { return base_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_of(plan_.slots[s.operands.begin + k]); }
  template <class F>
  constexpr void for_each_operand(int unit, F f) const {
    for (int i = units_[unit].begin; i < units_[unit].end; ++i)
      for (int k = 0; k < plan_.steps[i].operands.count; ++k) f(operand(plan_.steps[i], k));
  }
  template <class F>
  constexpr void for_each_result(int unit, F f) const {
    for (int i = units_[unit].begin; i < units_[unit].end; ++i)
      for (int k = 0; k < plan_.steps[i].results.count; ++k) f(base_of(plan_.slots[plan_.steps[i].results.begin + k]));
  }
  /// Returns true if a step is a collective that is worth starting.
  [[nodiscard]] constexpr bool is_hidden(const plan_step& s) const {
    return may_be_started(s) && (!brings_margins(plan_, s) || brings_whole_shards(plan_, s));
  }
  [[nodiscard]] constexpr std::int64_t time_of(int unit) const {
    const plan_step& s = first(unit);
    if (is_hidden(s)) return time_of_collective(plan_.mesh, net_, s.collective, facts_of(s).axes(view_, s), s.bytes_sent);
    std::int64_t sum = 0;
    for (int i = units_[unit].begin; i < units_[unit].end && s.times > 0; ++i) {
      const plan_step& part = plan_.steps[i];
      if (part.bytes_sent > 0 || facts_of(part).work != step_work::computes) continue;
      operator_work work{plan_.nodes[part.node].work.flops / s.times, 0};
      for (const auto* list : {&part.operands, &part.results})
        for (int k = 0; k < list->count; ++k) work.bytes += bytes_of_shard(plan_.values[plan_.slots[list->begin + k]]);
      sum = add_times(sum, net_.time_of(work));
    }
    return sum;
  }

  /// Returns an order that places each collective before its first user, and earlier if work can hide it.
  constexpr vec<int> started_ahead(const vec<int>& units) {
    vec<int> backwards;
    vec<pending> queue;  // collectives whose users are placed, the last user first
    std::size_t placed = 0;
    const auto is_here = [&](int maker, int reader) { return maker >= begin_ && maker != reader; };
    for (const int u : units) {
      for_each_result(u, [&](int v) { maker_[v] = u; });
      for_each_operand(u, [&](int v) {
        if (is_here(maker_[v], u)) ++uses_[maker_[v]];
      });
    }
    vec<std::uint8_t> is_unread(units.size(), 0);
    for (std::size_t n = 0; n < units.size(); ++n) is_unread[n] = uses_[units[n]] == 0 ? 1 : 0;
    const auto put = [&](int u) {
      backwards.push_back(u);
      for_each_operand(u, [&](int v) {
        if (const int m = maker_[v]; is_here(m, u) && --uses_[m] == 0 && is_hidden(first(m))) queue.push_back({m, time_of(m)});
      });
    };
    const auto put_first = [&] { put(queue[placed++].unit); };
    for (std::size_t n = units.size(); n-- > 0;) {
      const int u = units[n];
      if (is_hidden(first(u))) {
        if (is_unread[n] != 0) queue.push_back({u, time_of(u)});
        continue;
      }
      while (uses_[u] > 0) put_first();
      const auto known = queue.size();  // the operands of `u` precede it
      put(u);
      pass(time_of(u), queue, placed, known, put_first);
    }
    while (placed < queue.size()) put_first();
    vec<int> order;
    for (std::size_t n = backwards.size(); n-- > 0;) order.push_back(backwards[n]);
    return order;
  }

  /// Returns an order that lets users of collectives in progress wait while other work continues. A collective of
  /// operands from before the stretch has its place already: it overtakes a waiting step only if work does so too.
  constexpr vec<int> delayed(const vec<int>& units) {
    vec<int> order, waiting;
    vec<pending> queue;  // collectives in progress, the first one first
    std::size_t over = 0;
    bool is_idle = false;  // a step waits, and no work has overtaken it
    for (const int u : units) set(u, to_be_made);
    const auto may_go = [&](int u) {
      bool is_there = true;
      for_each_operand(u, [&](int v) { is_there = is_there && (state_[v] == there || maker_[v] == u); });
      if (!is_there) return false;
      return !is_idle || !is_hidden(first(u)) || maker_[operand(first(u), 0)] >= begin_;
    };
    const auto end_first = [&] { set(queue[over++].unit, there); };
    const auto go = [&](int u) {
      order.push_back(u);
      if (is_hidden(first(u))) {
        set(u, under_way);
        queue.push_back({u, time_of(u)});
        return;
      }
      is_idle = false;
      set(u, there);
      pass(time_of(u), queue, over, queue.size(), end_first);
    };
    const auto go_or_wait = [&](int u, vec<int>& list) {
      if (may_go(u)) return go(u);
      is_idle = is_idle || list.empty();
      list.push_back(u);
    };
    // Continues with the waiting steps, in their order, that need not wait any more.
    const auto go_on = [&] {
      for (bool any = true; any && !waiting.empty();) {
        vec<int> still;
        is_idle = false;
        for (const int u : waiting) go_or_wait(u, still);
        any = still.size() < waiting.size();
        waiting = std::move(still);
      }
    };
    for (const int u : units) {
      const auto ended = over;
      go_or_wait(u, waiting);
      if (over != ended) go_on();
    }
    for (go_on(); !waiting.empty(); go_on()) end_first();
    while (over < queue.size()) end_first();
    return order;
  }
  constexpr void set(int unit, readiness r) {
    for_each_result(unit, [&](int v) { state_[v] = r; });
  }

  plan& plan_;
  plan_view view_;
  span<const int> base_;
  const network_rates& net_;
  vec<step_range> units_;
  int begin_ = 0;            // of the current stretch: a unit
  vec<int> maker_;           // by value: the last unit so far that computes it; -1: none
  vec<int> uses_;            // by unit: how often other units of its stretch read its results
  vec<std::uint8_t> state_;  // by value: readiness
};

constexpr void hide_collectives(plan& p, span<const int> base, const network_rates& net) { collective_hider(p, base, net).run(); }

}  // namespace gspmd::detail
