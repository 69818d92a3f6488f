// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/passes/order/list_scheduler.hpp"
#include "gspmd/detail/passes/order/step_needs.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/detail/support/zeroed.hpp"

namespace gspmd::detail {

/// Returns true if a run of row blocks begins at `s`: a body that works in place, as no loop does.
constexpr bool goes_by_rows(const plan_step& s) {
  return facts_of(s).role == step_role::loop_begin && facts_of(s).works_in_place(s);
}
/// Returns the end of the unit that begins at step `i`: one step, or all steps of a run of row blocks.
constexpr int end_of_unit(const plan_step* steps, int i) { return goes_by_rows(steps[i]) ? steps[i].target + 1 : i + 1; }

/// Finds an order of a plan's steps that needs less memory in the arena than the order of the program.
///
/// 1. Steps of loops and conditionals stay where they are, and so do the copies into carried values. The steps between
///    two such steps, a stretch, are ordered on their own. The steps of a run of row blocks move together as one unit;
///    every other step is a unit by itself.
/// 2. Nothing moves if a single step, or the memory held between stretches, needs as much as the program needs now. A
///    stretch that does not determine the peak is not changed.
/// 3. A step that may overwrite an input or a carried value stays after all other steps that read that value. So does
///    a step that computes an output whose memory can hold its operand.
/// 4. Values that one message reduces together are one buffer: see memory_planner.
///
/// The peak is an estimate: the memory planner may find no place for values that would fit. The caller checks whether
/// the arena becomes smaller, and keeps the old order if it does not.
// Pointers and few calls: Clang counts calls towards the limit of an evaluation.
class step_orderer {
 public:
  /// `base`: by value, the value whose memory it shares.
  constexpr step_orderer(const plan_view& p, span<const int> base)
      : plan_(p),
        steps_(p.steps.data()),
        slots_(p.slots.data()),
        base_(base.data()),
        step_count_(static_cast<int>(p.steps.size())),
        value_count_(static_cast<int>(base.size())),
        ints_(8 * value_count_ + 6 * step_count_ + 3 + slot_count()),
        longs_(value_count_ + 2 * step_count_) {
    ints_.take_each(value_count_, is_outside_, buffer_, first_, last_, visited_, made_, number_, overwriter_);
    ints_.take_each(step_count_, in_place_, trial_, order_);
    ints_.take_each(step_count_ + 1, unit_, from_, touched_from_);
    touched_ = ints_.take(slot_count());
    bytes_ = longs_.take(value_count_);
    longs_.take_each(step_count_, opens_, closes_);
  }
  step_orderer(const step_orderer&) = delete;
  step_orderer& operator=(const step_orderer&) = delete;

  /// Writes the numbers of the steps in their new order to `order`. Returns false if the order should stay.
  constexpr bool run(int* order) {
    find_units();
    find_buffers();
    for (int i = unit_count_; i-- > 0;)
      if (in_place_[i] != 0) compute_in_output(i);
    find_lives();
    find_overwriters();
    const auto bound = measure();
    std::int64_t now = bound;
    std::int64_t least = bound;
    for (int i = 0; i < unit_count_; ++i) order_[i] = i;
    for (auto& s : stretches_) {
      if (now < s.peak) now = s.peak;
      s.new_peak = s.peak;
      if (s.peak > bound) improve(s, order_ + s.begin);
      if (least < s.new_peak) least = s.new_peak;
    }
    if (least >= now) return false;
    for (const auto& s : stretches_)
      if (s.peak <= least)
        for (int i = s.begin; i < s.end; ++i) order_[i] = i;
    for (int i = 0; i < unit_count_; ++i)
      for (int k = from_[order_[i]]; k < from_[order_[i] + 1]; ++k) *order++ = k;
    return true;
  }

 private:
  struct stretch {
    int begin = 0;  // units
    int end = 0;
    std::int64_t live = 0;  // bytes held before it
    std::int64_t peak = 0;
    std::int64_t new_peak = 0;
  };

  [[nodiscard]] constexpr int slot_count() const {
    int count = 0;
    for (int i = 0; i < step_count_; ++i) count += steps_[i].operands.count + steps_[i].results.count;
    return count;
  }
  [[nodiscard]] constexpr int operand(const plan_step& s, int k) const { return base_[slots_[s.operands.begin + k]]; }
  [[nodiscard]] constexpr int result(const plan_step& s, int k) const { return base_[slots_[s.results.begin + k]]; }
  /// Returns the first step of a unit.
  [[nodiscard]] constexpr const plan_step& step(int unit) const { return steps_[from_[unit]]; }
  [[nodiscard]] constexpr bool stays(int unit) const {
    return !goes_by_rows(step(unit)) && facts_of(step(unit)).role >= step_role::hands_on;
  }
  [[nodiscard]] static constexpr std::int64_t in_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
  [[nodiscard]] constexpr std::int64_t scratch_of(int unit) const {
    std::int64_t most = 0;
    for (int i = from_[unit]; i < from_[unit + 1]; ++i)
      if (const auto bytes = in_lines(facts_of(steps_[i]).scratch_bytes(plan_, steps_[i])); most < bytes) most = bytes;
    return most;
  }

  constexpr void find_units() {
    for (int i = 0; i < step_count_; from_[++unit_count_] = i) {
      const int end = end_of_unit(steps_, i);
      while (i < end) unit_[i++] = unit_count_;
    }
    unit_[step_count_] = unit_count_;
  }

  /// Finds the buffers that each unit touches, the result first, and their sizes. Numbers of units are stored plus 1;
  /// 0 means none.
  constexpr void find_buffers() {
    const planned_value* const values = plan_.values.data();
    for (const int v : plan_.inputs) is_outside_[base_[v]] = 1;
    for (const int v : plan_.outputs) is_outside_[base_[v]] = 1;
    for (int v = 0; v < value_count_; ++v) buffer_[v] = base_[v];
    for (int u = 0; u < unit_count_; ++u) {
      const auto& s = step(u);
      const auto& facts = facts_of(s);
      // The first result of a run of row blocks is the number of the block, in separate memory.
      const int most = goes_by_rows(s) ? 2 : 1;
      const bool may_share = s.results.count == most && s.operands.count > 0 && !stays(u) && facts.works_in_place(s);
      in_place_[u] = may_share ? 1 : 0;
      if (!is_joined(s)) continue;
      for (int k = 0; k < s.results.count; ++k) buffer_[operand(s, k)] = buffer_[result(s, k)] = result(s, 0);
    }
    int next = 0;
    for (int i = 0; i < step_count_; ++i) {
      const auto& s = steps_[i];
      const int u = unit_[i];
      for (int k = 0; k < s.results.count + s.operands.count; ++k) {
        const bool is_result = k < s.results.count;
        const int v =
            base_[slots_[is_result ? s.results.begin + s.results.count - 1 - k : s.operands.begin + k - s.results.count]];
        const int b = buffer_[v];
        if (is_result) {
          made_[v] = u + 1;
          const auto& value = values[v];
          if (is_outside_[v] == 0 && is_joined(s)) bytes_[b] += elements(value.local) * bytes_of(value.type);
          else if (is_outside_[v] == 0 && b == v) bytes_[b] = elements(value.local) * bytes_of(value.type);
        }
        if (visited_[b] == u + 1) continue;
        visited_[b] = u + 1;
        last_[b] = u + 1;
        touched_[next++] = b;
      }
      touched_from_[u + 1] = next;
    }
    for (int b = 0; b < value_count_; ++b) bytes_[b] = (bytes_[b] + 63) / 64 * 64;
  }

  /// If a step computes an output in place, places its operand in the memory of that output.
  constexpr void compute_in_output(int i) {
    const auto& s = step(i);
    const int r = result(s, s.results.count - 1);
    if (is_outside_[r] == 0) return;
    const planned_value* const values = plan_.values.data();
    int found = -1;
    for (int k = 0; k < s.operands.count; ++k) {
      const int v = operand(s, k);
      if (values[v].type != values[r].type || !(values[v].local == values[r].local)) continue;
      if (made_[v] == 0) return;  // the output may use the memory of this input: see memory_planner
      if (found < 0 && last_[v] == i + 1 && buffer_[v] == v && is_outside_[v] == 0 && !is_joined(step(made_[v] - 1))) found = v;
    }
    if (found < 0) return;
    is_outside_[found] = 1;
    bytes_[found] = 0;
    overwriter_[found] = i + 1;
  }

  /// Finds the first and the last unit during which each buffer is in use, like the memory planner.
  constexpr void find_lives() {
    vec<int> loops;
    for (int i = 0; i < unit_count_; ++i) {
      const auto& s = step(i);
      const auto role = stays(i) ? facts_of(s).role : step_role::plain;
      for (int t = touched_from_[i]; t < touched_from_[i + 1]; ++t) {
        const int b = touched_[t];
        if (bytes_[b] == 0) continue;
        if (first_[b] == 0) first_[b] = i + 1;
        int last = i + 1;
        for (const int loop : loops)
          if (const int end = unit_[step(loop).target] + 1; first_[b] < loop + 1 && last < end) last = end;
        if (role == step_role::loop_begin) last = unit_[s.target] + 1;  // the number of the iteration
        if (last_[b] < last) last_[b] = last;
      }
      if (role == step_role::loop_begin) loops.push_back(i);
      if (role == step_role::loop_end) loops.pop_back();
    }
    for (int b = 0; b < value_count_; ++b) {
      if (bytes_[b] == 0 || first_[b] == 0) continue;
      opens_[first_[b] - 1] += bytes_[b];
      closes_[last_[b] - 1] += bytes_[b];
    }
  }

  /// Finds the units that compute the next value of a carried value, or an output that may overwrite an input. Each of
  /// them must be the last to read that value.
  constexpr void find_overwriters() {
    for (int i = 0; i < step_count_; ++i)
      if (steps_[i].target >= 0 && facts_of(steps_[i]).role == step_role::hands_on)
        overwriter_[result(steps_[i], 0)] = made_[operand(steps_[i], 0)];
    for (const int o : plan_.outputs) {
      const int u = made_[base_[o]] - 1;
      if (u < 0) continue;
      for (int i = from_[u]; i < from_[u + 1]; ++i) {
        if (facts_of(steps_[i]).role != step_role::fuses_operators) continue;
        for (int k = 0; k < steps_[i].operands.count; ++k)
          if (const int v = operand(steps_[i], k); made_[v] == 0 && last_[v] == u + 1) overwriter_[v] = u + 1;
      }
    }
  }

  /// Lists the stretches with their peaks. Returns the bytes that are in use in any order.
  constexpr std::int64_t measure() {
    std::int64_t live = 0;
    std::int64_t bound = 0;
    for (int i = 0; i < unit_count_; ++i) {
      if (stays(i)) {
        if (bound < live + opens_[i]) bound = live + opens_[i];
        live += opens_[i] - closes_[i];
        continue;
      }
      stretch s;
      s.begin = i;
      s.live = live;
      std::int64_t needed = 0;      // by one step
      std::int64_t through = live;  // of buffers that no step here touches
      const int here = unit_count_ + 1 + s.begin;
      for (; i < unit_count_ && !stays(i); ++i) {
        const int first = touched_from_[i];
        const auto scratch = scratch_of(i);
        std::int64_t own = scratch;
        std::int64_t shared = 0;
        std::int64_t could_share = 0;
        const int r = touched_[first];
        for (int t = first; t < touched_from_[i + 1]; ++t) {
          const int b = touched_[t];
          if (bytes_[b] == 0) continue;
          own += bytes_[b];
          if (first_[b] <= s.begin && visited_[b] != here) through -= bytes_[b];
          visited_[b] = here;
          if (t == first || in_place_[i] == 0 || bytes_[b] != bytes_[r]) continue;
          could_share = bytes_[r];
          if (first_[b] <= i && last_[b] == i + 1 && first_[r] == i + 1 && last_[r] > i + 1) shared = bytes_[r];
        }
        if (s.peak < live + opens_[i] - shared + scratch) s.peak = live + opens_[i] - shared + scratch;
        if (needed < own - could_share) needed = own - could_share;
        live += opens_[i] - closes_[i];
      }
      s.end = i--;
      needed += through;
      if (needed < s.live) needed = s.live;
      if (needed < live) needed = live;
      if (bound < needed) bound = needed;
      stretches_.push_back(s);
    }
    return bound;
  }

  /// Searches a better order of a stretch, first forwards, then backwards from the result.
  constexpr void improve(stretch& s, int* order) {
    const int touched = touched_from_[s.end] - touched_from_[s.begin];
    const int count = s.end - s.begin;
    int operands = 0;
    for (int i = from_[s.begin]; i < from_[s.end]; ++i) operands += steps_[i].operands.count;
    step_needs needs(count, touched, 2 * operands);
    std::int64_t through = s.live;
    for (int i = s.begin; i < s.end; ++i) {
      needs.add_step(scratch_of(i), in_place_[i] != 0);
      for (int t = touched_from_[i]; t < touched_from_[i + 1]; ++t) {
        const int b = touched_[t];
        if (bytes_[b] == 0 && t > touched_from_[i]) continue;
        if (number_[b] == 0) {
          const bool is_given = first_[b] != 0 && first_[b] <= s.begin;
          number_[b] = 1 + needs.add_buffer(bytes_[b], is_given, last_[b] > s.end);
          if (is_given) through -= bytes_[b];
        }
        needs.touch(number_[b] - 1);
      }
    }
    for (int t = touched_from_[s.begin]; t < touched_from_[s.end]; ++t) number_[touched_[t]] = 0;
    add_edges(s, needs);
    for (int k = 0; k < count; ++k) trial_[k] = k;
    for (int pass = 0; pass < 2; ++pass) {
      list_scheduler(needs, pass == 1).run(trial_);
      const auto peak = through + peak_of(needs, trial_);
      if (peak >= s.new_peak) continue;
      s.new_peak = peak;
      for (int k = 0; k < count; ++k) order[k] = s.begin + trial_[k];
    }
  }

  constexpr void add_edges(const stretch& s, step_needs& needs) const {
    for (int i = s.begin, at = from_[i]; i < s.end; i = unit_[++at]) {
      const auto& operands = steps_[at].operands;
      for (int k = 0; k < operands.count; ++k) {
        const int v = base_[slots_[operands.begin + k]];
        const int made = made_[v] - 1;
        const int overwriter = overwriter_[v] - 1;
        if (made >= s.begin && made < i) needs.add_edge(made - s.begin, i - s.begin);
        if (overwriter > i && overwriter < s.end) needs.add_edge(i - s.begin, overwriter - s.begin);
      }
    }
  }

  plan_view plan_;
  const plan_step* steps_;
  const int* slots_;
  const int* base_;
  int step_count_;
  int value_count_;
  int unit_count_ = 0;
  zeroed<int> ints_;
  zeroed<std::int64_t> longs_;
  int* is_outside_ = nullptr;    // by value: is in the caller's memory
  int* buffer_ = nullptr;        // by base value: the first one of the values that are contiguous
  int* first_ = nullptr;         // by buffer: the first unit that uses it; 0: none, also in the next lists
  int* last_ = nullptr;          // by buffer
  int* visited_ = nullptr;       // by buffer: the last unit, or stretch, that visited it
  int* made_ = nullptr;          // by value: the unit that computes it
  int* number_ = nullptr;        // by buffer: its number in the stretch that is being ordered
  int* overwriter_ = nullptr;    // by value: the unit that may overwrite it
  int* in_place_ = nullptr;      // by unit: 1 if its result may overwrite an operand
  int* trial_ = nullptr;         // an order of a stretch
  int* unit_ = nullptr;          // by step, and the end
  int* from_ = nullptr;          // by unit, and the end: its first step
  int* order_ = nullptr;         // units
  int* touched_from_ = nullptr;  // by unit: the index of its first buffer in touched_
  int* touched_ = nullptr;
  std::int64_t* bytes_ = nullptr;  // by buffer: in the arena
  std::int64_t* opens_ = nullptr;  // by unit: bytes
  std::int64_t* closes_ = nullptr;
  vec<stretch> stretches_;
};

/// Puts the steps of a plan in another order.
constexpr void put_in_order(plan& p, span<const int> order) {
  vec<plan_step> steps;
  vec<int> place;
  place.resize(order.size(), 0);
  steps.reserve(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    steps.push_back(p.steps[static_cast<std::size_t>(order[k])]);
    place[static_cast<std::size_t>(order[k])] = static_cast<int>(k);
  }
  p.steps = std::move(steps);
  for (auto& s : p.steps)
    if (s.target >= 0) s.target = place[static_cast<std::size_t>(s.target)];
  for (auto& v : p.values)
    if (v.step >= 0) v.step = place[static_cast<std::size_t>(v.step)];
}

}  // namespace gspmd::detail
