// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/plan.hpp"
#include "gspmd/detail/passes/list_scheduler.hpp"

namespace gspmd::detail {

/// Finds an order of a plan's steps in which less lies in the arena at once than in the order of the program.
///
/// 1. Steps of loops and conditionals stay where they are, and so do the copies into carried values: what stands between two of
///    them, a stretch, is ordered on its own.
/// 2. Nothing is moved where some single step, or what lies there from one stretch to the next, takes as much as the program
///    does now; and no stretch is touched that does not decide the peak.
/// 3. A step that may write where its operand lies, because that is an input that is given up or a carried value, stays behind
///    everybody else who reads it.
/// 4. What one message reduces together is one buffer: see memory_planner.
///
/// The peak is estimated here. Who calls asks the memory planner whether the arena becomes smaller, and keeps the old order
/// if it does not.
class step_orderer {
 public:
  /// `base`: by value, the one whose memory it shares.
  constexpr step_orderer(const plan_view& p, std::span<const int> base) : plan_(p), base_(base) {
    const auto values = p.values.size();
    const auto steps = p.steps.size();
    is_outside_.resize(values, 0);
    buffer_.resize(values, -1);
    bytes_.resize(values, 0);
    first_.resize(values, -1);
    last_.resize(values, -1);
    seen_.resize(values, -1);
    made_.resize(values, -1);
    number_.resize(values, -1);
    overwriter_.resize(values, -1);
    touched_from_.reserve(steps + 1);
    touched_.reserve(p.slots.size());
    opens_.resize(steps, 0);
    closes_.resize(steps, 0);
  }

  /// The steps in their new order; empty if they should stay as they are.
  constexpr std::vector<int> run() {
    find_buffers();
    find_lives();
    const auto bound = measure();
    std::int64_t now = bound;
    std::int64_t least = bound;
    find_overwriters();
    for (auto& s : stretches_) {
      if (now < s.peak) now = s.peak;
      if (s.peak > bound) improve(s);
      const auto peak = s.order.empty() ? s.peak : s.new_peak;
      if (least < peak) least = peak;
    }
    std::vector<int> order;
    if (least >= now) return order;
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) order.push_back(i);
    for (const auto& s : stretches_)
      if (s.peak > least)
        for (std::size_t k = 0; k < s.order.size(); ++k) order[at(s.begin) + k] = s.begin + s.order[k];
    return order;
  }

 private:
  struct stretch {
    int begin = 0;
    int end = 0;
    std::int64_t live = 0;  // bytes, before it
    std::int64_t peak = 0;
    std::int64_t new_peak = 0;
    std::vector<int> order;  // from 0; empty: as it is
  };

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] constexpr const plan_step& step(int i) const { return plan_.steps[at(i)]; }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_[at(plan_.slots[at(s.operands.begin + k)])]; }
  [[nodiscard]] constexpr int result(const plan_step& s, int k) const { return base_[at(plan_.slots[at(s.results.begin + k)])]; }
  [[nodiscard]] static constexpr bool is_joined(const plan_step& s) { return s.what == action::combine && s.operands.count > 1; }
  [[nodiscard]] static constexpr bool stays(const plan_step& s) { return s.what == action::copy || s.what >= action::loop_begin; }
  [[nodiscard]] static constexpr std::int64_t in_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
  [[nodiscard]] constexpr std::int64_t scratch_of(const plan_step& s) const {
    if (s.what == action::contract) return in_lines(plan_.contractions[at(s.spec)].scratch_elems * bytes_of(s.type));
    if (s.what == action::windowed) return in_lines(plan_.windows[at(s.spec)].scratch_elems * bytes_of(s.type));
    return 0;
  }
  [[nodiscard]] static constexpr bool may_work_in_place(const plan_step& s) {
    return s.results.count == 1 && (s.what == action::fused || s.what == action::set_row ||
                                    (s.what == action::combine && s.collective == collective_kind::all_reduce));
  }

  /// Which buffers each step touches, the result first.
  constexpr void find_buffers() {
    for (const int v : plan_.inputs) is_outside_[at(base_[at(v)])] = 1;
    for (const int v : plan_.outputs) is_outside_[at(base_[at(v)])] = 1;
    for (std::size_t v = 0; v < buffer_.size(); ++v) buffer_[v] = base_[v];
    for (const auto& s : plan_.steps)
      if (is_joined(s))
        for (int k = 0; k < s.results.count; ++k) buffer_[at(operand(s, k))] = buffer_[at(result(s, k))] = result(s, 0);
    const auto touch = [this](int b, int i) {
      if (seen_[at(b)] == i) return;
      seen_[at(b)] = i;
      touched_.push_back(b);
    };
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
      const auto& s = step(i);
      touched_from_.push_back(static_cast<int>(touched_.size()));
      for (int k = 0; k < s.results.count; ++k) {
        const int v = result(s, k);
        made_[at(v)] = i;
        touch(buffer_[at(v)], i);
        if (is_outside_[at(v)] != 0 || (buffer_[at(v)] != v && !is_joined(s))) continue;
        const auto& value = plan_.value(v);
        const auto bytes = elements(value.local) * bytes_of(value.type);
        bytes_[at(buffer_[at(v)])] = is_joined(s) && k > 0 ? bytes_[at(buffer_[at(v)])] + bytes : bytes;
      }
      for (int k = 0; k < s.operands.count; ++k) touch(buffer_[at(operand(s, k))], i);
    }
    touched_from_.push_back(static_cast<int>(touched_.size()));
    for (auto& b : bytes_) b = in_lines(b);
  }

  /// From which step to which each buffer lies there: as the memory planner sees it.
  constexpr void find_lives() {
    std::vector<int> loops;
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
      const auto& s = step(i);
      for (int t = touched_from_[at(i)]; t < touched_from_[at(i) + 1]; ++t) {
        const auto b = at(touched_[at(t)]);
        if (first_[b] < 0) first_[b] = is_outside_[b] != 0 ? 0 : i;
        int last = i;
        for (const int loop : loops)
          if (first_[b] < loop && last < step(loop).target) last = step(loop).target;
        if (s.what == action::loop_begin && last < s.target) last = s.target;  // the number of the iteration
        if (last_[b] < last) last_[b] = last;
      }
      if (s.what == action::loop_begin) loops.push_back(i);
      if (s.what == action::loop_end) loops.pop_back();
    }
    for (std::size_t b = 0; b < first_.size(); ++b) {
      if (first_[b] < 0 || bytes_[b] == 0) continue;
      opens_[at(first_[b])] += bytes_[b];
      closes_[at(last_[b])] += bytes_[b];
    }
  }

  /// What makes the next one of a carried value, or an output out of an input, is the last one that reads it.
  constexpr void find_overwriters() {
    for (const auto& s : plan_.steps)
      if (s.what == action::copy && s.target >= 0) overwriter_[at(result(s, 0))] = made_[at(operand(s, 0))];
    for (const int o : plan_.outputs) {
      const int i = made_[at(base_[at(o)])];
      if (i < 0 || step(i).what != action::fused) continue;
      for (int k = 0; k < step(i).operands.count; ++k)
        if (const auto v = at(operand(step(i), k)); is_outside_[v] != 0 && last_[v] == i) overwriter_[v] = i;
    }
  }

  /// Lists the stretches with their peaks; what no order inside them changes.
  constexpr std::int64_t measure() {
    std::int64_t live = 0;
    std::int64_t bound = 0;
    const int count = static_cast<int>(plan_.steps.size());
    for (int i = 0; i < count; ++i) {
      if (stays(step(i))) {
        if (bound < live + opens_[at(i)]) bound = live + opens_[at(i)];
        live += opens_[at(i)] - closes_[at(i)];
        continue;
      }
      stretch s;
      s.begin = i;
      s.live = live;
      std::int64_t needed = 0;   // by one step
      std::int64_t through = live;  // of what no step here touches
      for (; i < count && !stays(step(i)); ++i) {
        const int first = touched_from_[at(i)];
        std::int64_t own = scratch_of(step(i));
        std::int64_t shared = 0;
        std::int64_t could_share = 0;
        for (int t = first; t < touched_from_[at(i) + 1]; ++t) {
          const auto b = at(touched_[at(t)]);
          own += bytes_[b];
          if (first_[b] < s.begin && seen_[b] != count + s.begin) through -= bytes_[b];
          seen_[b] = count + s.begin;
          const auto r = at(touched_[at(first)]);
          if (t == first || bytes_[b] != bytes_[r] || !may_work_in_place(step(i))) continue;
          could_share = bytes_[r];
          if (first_[b] < i && last_[b] == i && first_[r] == i && last_[r] > i) shared = bytes_[r];
        }
        const auto during = live + opens_[at(i)] - shared + scratch_of(step(i));
        if (s.peak < during) s.peak = during;
        if (needed < own - could_share) needed = own - could_share;
        live += opens_[at(i)] - closes_[at(i)];
      }
      s.end = i--;
      needed += through;
      if (needed < s.live) needed = s.live;
      if (needed < live) needed = live;
      if (bound < needed) bound = needed;
      if (s.end - s.begin > 1) stretches_.push_back(std::move(s));
      else if (bound < s.peak) bound = s.peak;
    }
    return bound;
  }

  constexpr void improve(stretch& s) {
    step_needs needs;
    std::int64_t through = s.live;
    for (int i = s.begin; i < s.end; ++i) {
      needs.touched_from.push_back(static_cast<int>(needs.touched.size()));
      needs.scratch.push_back(scratch_of(step(i)));
      needs.in_place.push_back(may_work_in_place(step(i)) ? 1 : 0);
      for (int t = touched_from_[at(i)]; t < touched_from_[at(i) + 1]; ++t) {
        const auto b = at(touched_[at(t)]);
        if (number_[b] < 0) {
          number_[b] = static_cast<int>(needs.bytes.size());
          needs.bytes.push_back(bytes_[b]);
          needs.is_given.push_back(first_[b] < s.begin ? 1 : 0);
          needs.is_kept.push_back(last_[b] >= s.end ? 1 : 0);
          if (first_[b] < s.begin) through -= bytes_[b];
        }
        needs.touched.push_back(number_[b]);
      }
    }
    needs.touched_from.push_back(static_cast<int>(needs.touched.size()));
    add_edges(s, needs);
    for (int t = touched_from_[at(s.begin)]; t < touched_from_[at(s.end)]; ++t) number_[at(touched_[at(t)])] = -1;

    std::vector<int> order;
    for (int i = 0; i < needs.count(); ++i) order.push_back(i);
    s.new_peak = s.peak;
    for (const bool backwards : {false, true}) {
      list_scheduler pass(needs, backwards);
      order = pass.run(order);
      const auto peak = through + peak_of(needs, order);
      if (peak >= s.new_peak) continue;
      s.new_peak = peak;
      s.order = order;
    }
  }

  constexpr void add_edges(const stretch& s, step_needs& needs) const {
    for (int i = s.begin; i < s.end; ++i)
      for (int k = 0; k < step(i).operands.count; ++k) {
        const auto v = at(operand(step(i), k));
        if (made_[v] >= s.begin && made_[v] < s.end) needs.edges.push_back({made_[v] - s.begin, i - s.begin});
        if (overwriter_[v] > i && overwriter_[v] < s.end) needs.edges.push_back({i - s.begin, overwriter_[v] - s.begin});
      }
  }

  plan_view plan_;
  std::span<const int> base_;
  std::vector<std::uint8_t> is_outside_;  // by value: lies in memory of the caller
  std::vector<int> buffer_;               // by value whose memory it is: the first one of what lies together
  std::vector<std::int64_t> bytes_;       // by buffer, in the arena
  std::vector<int> first_;                // by buffer: the step from which it lies there
  std::vector<int> last_;
  std::vector<int> seen_;          // by buffer: the last step, or stretch, that met it
  std::vector<int> made_;          // by value: the step that makes it
  std::vector<int> number_;        // by buffer: in the stretch that is ordered now
  std::vector<int> overwriter_;    // by value: the step that may write where it lies; -1: none
  std::vector<int> touched_from_;  // by step
  std::vector<int> touched_;
  std::vector<std::int64_t> opens_;  // by step: bytes
  std::vector<std::int64_t> closes_;
  std::vector<stretch> stretches_;
};

/// The steps of a plan in another order.
constexpr void put_in_order(plan& p, std::span<const int> order) {
  std::vector<plan_step> steps;
  std::vector<int> place(order.size(), 0);
  steps.reserve(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    steps.push_back(p.steps[static_cast<std::size_t>(order[k])]);
    place[static_cast<std::size_t>(order[k])] = static_cast<int>(k);
  }
  p.steps = std::move(steps);
  for (auto& v : p.values)
    if (v.step >= 0) v.step = place[static_cast<std::size_t>(v.step)];
}

}  // namespace gspmd::detail
