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
/// 1. Backwards through the steps: a collective goes before so much work as takes its time on the network, as far as what it sends is
///    there. Weights are gathered ahead.
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
      : plan_(p), base_(base), net_(net), maker_(p.values.size(), -1), state_(p.values.size(), there) {}

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

  [[nodiscard]] constexpr const plan_step& at(int i) const { return plan_.steps[i]; }
  [[nodiscard]] constexpr bool stays(int i) const { return facts_of(at(i)).role >= step_role::hands_on; }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_[plan_.slots[s.operands.begin + k]]; }
  [[nodiscard]] constexpr int result(const plan_step& s, int k) const { return base_[plan_.slots[s.results.begin + k]]; }
  /// Whether a step is a collective that is worth to be started.
  [[nodiscard]] constexpr bool is_hidden(const plan_step& s) const {
    return may_be_started(s) && !(is_mapped(s) && table_of<index_map>(plan_)[s.spec].has_margins());
  }
  [[nodiscard]] constexpr std::int64_t time_of(const plan_step& s) const {
    if (is_hidden(s)) return time_of_collective(plan_.mesh, net_, s.collective, s.axes, s.bytes_sent);
    if (communicates(s) || facts_of(s).work != step_work::computes || s.times == 0) return 0;
    operator_work work{plan_.nodes[s.node].work.flops / s.times, 0};
    for (const auto* list : {&s.operands, &s.results})
      for (int k = 0; k < list->count; ++k) {
        const auto& v = plan_.values[plan_.slots[list->begin + k]];
        work.bytes += elements(v.local) * bytes_of(v.type);
      }
    return net_.time_of(work);
  }

  constexpr vec<int> started_ahead(const vec<int>& steps) {
    vec<int> backwards;
    vec<pending> queue;  // collectives that stand behind, the last one first
    std::size_t placed = 0;
    for (const int i : steps)
      for (int k = 0; k < at(i).results.count; ++k) maker_[result(at(i), k)] = i;
    const auto place = [&] { backwards.push_back(queue[placed++].step); };
    for (std::size_t n = steps.size(); n-- > 0;) {
      const plan_step& s = at(steps[n]);
      for (std::size_t q = queue.size(); q-- > placed;) {
        bool is_made_here = false;
        for (int k = 0; k < at(queue[q].step).operands.count; ++k)
          is_made_here = is_made_here || maker_[operand(at(queue[q].step), k)] == steps[n];
        if (!is_made_here) continue;
        while (placed <= q) place();
      }
      const auto time = time_of(s);
      if (is_hidden(s)) {
        queue.push_back({steps[n], time});
        continue;
      }
      backwards.push_back(steps[n]);
      for (auto left = time; left > 0 && placed < queue.size();) {
        auto& first = queue[placed].time;
        const auto hidden = first < left ? first : left;
        left -= hidden;
        first -= hidden;
        if (first == 0) place();
      }
    }
    while (placed < queue.size()) place();
    vec<int> order;
    for (std::size_t n = backwards.size(); n-- > 0;) order.push_back(backwards[n]);
    return order;
  }

  constexpr vec<int> delayed(const vec<int>& steps) {
    vec<int> order, waiting;
    vec<pending> queue;  // collectives under way, the first one first
    std::size_t over = 0;
    for (const int i : steps) set(i, to_be_made);
    const auto is_ready = [&](int i) {
      for (int k = 0; k < at(i).operands.count; ++k)
        if (state_[operand(at(i), k)] != there) return false;
      return true;
    };
    const auto end_first = [&] { set(queue[over++].step, there); };
    const auto go = [&](int i) {
      order.push_back(i);
      if (is_hidden(at(i))) {
        set(i, under_way);
        queue.push_back({i, time_of(at(i))});
        return;
      }
      set(i, there);
      for (auto left = time_of(at(i)); left > 0 && over < queue.size();) {
        auto& first = queue[over].time;
        const auto hidden = first < left ? first : left;
        left -= hidden;
        first -= hidden;
        if (first == 0) end_first();
      }
    };
    // Those that wait, in their order, as far as they need not any more.
    const auto go_on = [&] {
      for (bool any = true; any;) {
        any = false;
        vec<int> still;
        for (const int i : waiting)
          if (is_ready(i)) go(i), any = true;
          else still.push_back(i);
        waiting = std::move(still);
      }
    };
    for (const int i : steps) {
      const auto ended = over;
      if (is_ready(i)) go(i);
      else waiting.push_back(i);
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
  span<const int> base_;
  const network_rates& net_;
  vec<int> maker_;            // by value: the step of this stretch that makes it; -1: none
  vec<std::uint8_t> state_;   // by value: readiness
};

constexpr void hide_collectives(plan& p, span<const int> base, const network_rates& net) { collective_hider(p, base, net).run(); }

}  // namespace gspmd::detail
