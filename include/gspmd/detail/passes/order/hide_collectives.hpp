// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/passes/order/order_steps.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Puts work beside collectives: before memory is placed, of an automatic program (overlapped.hpp). XLA calls this latency hiding.
///
/// 1. Backwards through the steps: before its first reader a collective has so much work as takes its time on the network, as far as what it
///    sends is there. Weights are gathered ahead.
/// 2. Forwards: what reads a collective that is still under way then waits, with all that reads that, and other work goes on. Gradients are
///    reduced while others are computed, and updates follow.
///
/// One network carries everything, so collectives go one after the other, and nothing is started earlier than it must: what is under way takes
/// memory. Steps of loops and conditionals stay where they are; what stands between two of them is ordered on its own. Margins of
/// stencils have their own way (overlap_moves.hpp).
class collective_hider {
 public:
  /// `base`: by value, the one whose memory it shares.
  constexpr collective_hider(plan& p, span<const int> base, const network_rates& net)
      : plan_(p),
        view_(p),
        base_(base),
        net_(net),
        maker_(p.values.size(), -1),
        uses_(p.steps.size(), 0),
        state_(p.values.size(), there) {}

  constexpr void run() {
    vec<int> order;
    const int count = static_cast<int>(plan_.steps.size());
    for (int begin = 0, end = 0; begin < count; begin = end) {
      if (stays(begin)) {
        order.push_back(begin);
        end = begin + 1;
        continue;
      }
      vec<int> stretch;
      for (end = begin; end < count && !stays(end); ++end) stretch.push_back(end);
      for (const int i : delayed(started_ahead(stretch))) order.push_back(i);
    }
    for (const auto& s : plan_.steps)
      if (is_hidden(s)) plan_.nodes[s.node].is_started = true;
    put_in_order(plan_, span<const int>(order.data(), order.size()));
  }

 private:
  enum readiness : std::uint8_t { there, to_be_made, under_way };
  struct pending {
    int step = 0;
    std::int64_t time = 0;  // picoseconds that nothing hides yet
  };

  /// Work of so much time hides collectives, the one at `first` and those behind it up to `last`; `end()` takes the first one away.
  // Before those that call it: Clang instantiates no template in a class of which it has not read the body yet.
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
  [[nodiscard]] constexpr const plan_step& at(int i) const { return plan_.steps[i]; }
  [[nodiscard]] constexpr bool stays(int i) const { return facts_of(at(i)).role >= step_role::hands_on; }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_[plan_.slots[s.operands.begin + k]]; }
  [[nodiscard]] constexpr int result(const plan_step& s, int k) const { return base_[plan_.slots[s.results.begin + k]]; }
  /// Whether a step is a collective that is worth to be started.
  [[nodiscard]] constexpr bool is_hidden(const plan_step& s) const {
    return may_be_started(s) && !(is_mapped(s) && table_of<index_map>(plan_)[s.spec].has_margins());
  }
  [[nodiscard]] constexpr std::int64_t time_of(const plan_step& s) const {
    if (is_hidden(s)) return time_of_collective(plan_.mesh, net_, s.collective, facts_of(s).axes(view_, s), s.bytes_sent);
    if (s.bytes_sent > 0 || facts_of(s).work != step_work::computes || s.times == 0) return 0;
    operator_work work{plan_.nodes[s.node].work.flops / s.times, 0};
    for (const auto* list : {&s.operands, &s.results})
      for (int k = 0; k < list->count; ++k) {
        const auto& v = plan_.values[plan_.slots[list->begin + k]];
        work.bytes += elements(v.local) * bytes_of(v.type);
      }
    return net_.time_of(work);
  }

  /// A collective goes to its first reader, and from there forwards.
  constexpr vec<int> started_ahead(const vec<int>& steps) {
    vec<int> backwards;
    vec<pending> queue;  // collectives whose readers stand behind, the last one first
    std::size_t placed = 0;
    for (const int i : steps) {
      for (int k = 0; k < at(i).results.count; ++k) maker_[result(at(i), k)] = i;
      for (int k = 0; k < at(i).operands.count; ++k)
        if (const int m = maker_[operand(at(i), k)]; m >= steps.front()) ++uses_[m];
    }
    vec<std::uint8_t> is_unread(steps.size(), 0);
    for (std::size_t n = 0; n < steps.size(); ++n) is_unread[n] = uses_[steps[n]] == 0 ? 1 : 0;
    const auto put = [&](int i) {
      backwards.push_back(i);
      for (int k = 0; k < at(i).operands.count; ++k)
        if (const int m = maker_[operand(at(i), k)]; m >= steps.front() && --uses_[m] == 0 && is_hidden(at(m)))
          queue.push_back({m, time_of(at(m))});
    };
    const auto put_first = [&] { put(queue[placed++].step); };
    for (std::size_t n = steps.size(); n-- > 0;) {
      const int i = steps[n];
      if (is_hidden(at(i))) {
        if (is_unread[n] != 0) queue.push_back({i, time_of(at(i))});
        continue;
      }
      while (uses_[i] > 0) put_first();
      const auto known = queue.size();  // its own operands come before it
      put(i);
      pass(time_of(at(i)), queue, placed, known, put_first);
    }
    while (placed < queue.size()) put_first();
    vec<int> order;
    for (std::size_t n = backwards.size(); n-- > 0;) order.push_back(backwards[n]);
    return order;
  }

  /// A collective of what was there before the stretch has its place by now: it goes ahead of a step that waits only where work does.
  constexpr vec<int> delayed(const vec<int>& steps) {
    vec<int> order, waiting;
    vec<pending> queue;  // collectives under way, the first one first
    std::size_t over = 0;
    bool is_idle = false;  // a step waits, and no work has gone ahead of it
    for (const int i : steps) set(i, to_be_made);
    const auto may_go = [&](int i) {
      for (int k = 0; k < at(i).operands.count; ++k)
        if (state_[operand(at(i), k)] != there) return false;
      return !is_idle || !is_hidden(at(i)) || maker_[operand(at(i), 0)] >= steps.front();
    };
    const auto end_first = [&] { set(queue[over++].step, there); };
    const auto go = [&](int i) {
      order.push_back(i);
      if (is_hidden(at(i))) {
        set(i, under_way);
        queue.push_back({i, time_of(at(i))});
        return;
      }
      is_idle = false;
      set(i, there);
      pass(time_of(at(i)), queue, over, queue.size(), end_first);
    };
    const auto go_or_wait = [&](int i, vec<int>& list) {
      if (may_go(i)) return go(i);
      is_idle = is_idle || list.empty();
      list.push_back(i);
    };
    // Those that wait, in their order, as far as they need not any more.
    const auto go_on = [&] {
      for (bool any = true; any && !waiting.empty();) {
        vec<int> still;
        is_idle = false;
        for (const int i : waiting) go_or_wait(i, still);
        any = still.size() < waiting.size();
        waiting = std::move(still);
      }
    };
    for (const int i : steps) {
      const auto ended = over;
      go_or_wait(i, waiting);
      if (over != ended) go_on();
    }
    for (go_on(); !waiting.empty(); go_on()) end_first();
    while (over < queue.size()) end_first();
    return order;
  }
  constexpr void set(int step, readiness r) {
    for (int k = 0; k < at(step).results.count; ++k) state_[result(at(step), k)] = r;
  }

  plan& plan_;
  plan_view view_;
  span<const int> base_;
  const network_rates& net_;
  vec<int> maker_;           // by value: the last step so far that makes it; -1: none
  vec<int> uses_;            // by step: how often what it makes is read in its stretch
  vec<std::uint8_t> state_;  // by value: readiness
};

constexpr void hide_collectives(plan& p, span<const int> base, const network_rates& net) { collective_hider(p, base, net).run(); }

}  // namespace gspmd::detail
