// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "gspmd/detail/passes/order/memory_use.hpp"
#include "gspmd/detail/passes/order/order_steps.hpp"
#include "gspmd/detail/support/span.hpp"
#include "gspmd/detail/support/vec.hpp"

/// Overlaps movements and reductions that the program starts and finishes itself (local::start): steps that do not
/// need them run in between.
namespace gspmd::detail {

/// Returns true if a step is a collective that is marked as started, and other devices take part in it.
constexpr bool is_started(const plan& p, const plan_step& s) { return may_be_started(s) && p.nodes[s.node].is_started; }

constexpr bool brings_margins(const plan& p, const plan_step& s) {
  return is_mapped(s) && table_of<index_map>(p)[s.spec].has_margins();
}
/// Returns true if the margins are as wide as the shards, so that a loop that reads them has no interior.
constexpr bool brings_whole_shards(const plan& p, const plan_step& s) {
  if (!brings_margins(p, s)) return false;
  const index_map& map = table_of<index_map>(p)[s.spec];
  return map.low + map.high >= p.values[p.slots[s.operands.begin]].local[map.dims[0].dim];
}

/// Returns true if any step is started. Then the order of the steps is the user's, because started collectives hold
/// memory.
constexpr bool has_started_steps(const plan& p) {
  return std::any_of(p.steps.begin(), p.steps.end(), [&](const plan_step& s) { return is_started(p, s); });
}

/// Moves each started step, and each step whose results only started steps need, to the place right after its operands
/// are computed. Call before memory is placed.
///
///   a; b; c = all_gather(a), started     ->     a; c; b
///
/// `base`: by value, the value whose memory it shares.
constexpr void start_early(plan& p, span<const int> base) {
  if (!has_started_steps(p)) return;
  const auto value_of = [&](const table_range& range, int k) { return base[static_cast<std::size_t>(p.slots[range.begin + k])]; };
  enum reader : std::uint8_t { none, early, late };
  vec<std::uint8_t> read_by(p.values.size(), none), is_early(p.steps.size(), 0);
  for (int i = static_cast<int>(p.steps.size()); i-- > 0;) {
    const plan_step& s = p.steps[i];
    bool all_early = facts_of(s).role < step_role::hands_on && s.results.count > 0;
    for (int k = 0; k < s.results.count; ++k) all_early = all_early && read_by[value_of(s.results, k)] == early;
    is_early[i] = all_early || is_started(p, s) ? 1 : 0;
    for (int k = 0; k < s.operands.count; ++k)
      if (auto& reads = read_by[value_of(s.operands, k)]; reads != late) reads = is_early[i] != 0 ? early : late;
  }
  vec<int> order;
  for (int i = 0; i < static_cast<int>(p.steps.size()); ++i) {
    const auto needs = [&](const plan_step& other) {
      for (int k = 0; k < other.results.count; ++k)
        for (int o = 0; o < p.steps[i].operands.count; ++o)
          if (value_of(other.results, k) == value_of(p.steps[i].operands, o)) return true;
      return facts_of(other).role >= step_role::hands_on;
    };
    std::size_t at = order.size();
    while (is_early[i] != 0 && at > 0 && !needs(p.steps[order[at - 1]])) --at;
    order.insert(order.begin() + at, i);
  }
  put_in_order(p, span<const int>(order.begin(), order.size()));
}

/// Splits each started step into start_move and finish_move, or start_combine and finish_combine. The second step is
/// placed before the first step that reads the result, writes to operand or result, or begins or ends a body. Call
/// after memory is placed.
///
///   s = all_reduce(p), started; loop; f(s)     ->     start_combine; loop; finish_combine; f(s)
constexpr void overlap_started(plan& p) {
  if (p.is_checked || !has_started_steps(p)) return;  // a checked program compares a result right after its step
  const int count = static_cast<int>(p.steps.size());
  vec<int> ended_before(p.steps.size(), -1);  // by step
  for (int m = 0; m < count; ++m) {
    const plan_step& s = p.steps[m];
    if (!is_started(p, s)) continue;
    const planned_value &from = p.values[p.slots[s.operands.begin]], &to = p.values[p.slots[s.results.begin]];
    int end = m + 1;
    bool computes = false, meets = false;
    for (int next_end = 0; end < count; end = next_end) {
      next_end = end_of_unit(p.steps.data(), end);
      meets = !goes_by_rows(p.steps[end]) && facts_of(p.steps[end]).role >= step_role::hands_on;
      for (int i = end; i < next_end && !meets; ++i) {
        const plan_step& next = p.steps[i];
        meets = reads(p, next, to) || writes(p, next, to) || writes(p, next, from) || writes_over_input(p, next, from);
        computes = computes || (!meets && facts_of(next).work == step_work::computes);
      }
      if (meets) break;
    }
    if (!computes || (share_memory(from, to) && !facts_of(s).works_in_place(s))) continue;
    ended_before[m] = end;
  }
  vec<plan_step> steps;
  vec<int> place, started;
  const auto add_step = [&](plan_step s, kernel_id of_move, kernel_id of_reduction, std::int64_t bytes) {
    s.kernel = facts_of(s).role == step_role::joins_operands ? of_reduction : of_move;  // kernels::combine, or kernels::move
    s.bytes_sent = bytes;
    steps.push_back(s);
  };
  for (int i = 0; i <= count; ++i) {
    for (const int m : started) {
      if (ended_before[m] != i) continue;
      steps[place[m]].target = static_cast<int>(steps.size());
      add_step(p.steps[m], id_of<kernels::finish_move>, id_of<kernels::finish_combine>, 0);
    }
    if (i == count) break;
    place.push_back(static_cast<int>(steps.size()));
    if (ended_before[i] < 0) {
      steps.push_back(p.steps[i]);
    } else {
      add_step(p.steps[i], id_of<kernels::start_move>, id_of<kernels::start_combine>, p.steps[i].bytes_sent);
      started.push_back(i);
    }
  }
  for (int i = 0; i < count; ++i)
    if (ended_before[i] < 0 && p.steps[i].target >= 0) steps[place[i]].target = place[p.steps[i].target];
  for (auto& v : p.values)
    if (v.step >= 0) v.step = place[v.step];
  p.steps = std::move(steps);
}

}  // namespace gspmd::detail
