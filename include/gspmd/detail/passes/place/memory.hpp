// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/passes/place/match_inputs.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Places every value of a plan. Inputs and outputs are in the caller's memory. All other values are at fixed offsets
/// in one arena per device.
///
/// 1. A value lives from the step that computes it to the last step that reads the value or its reshape. The operand of
///    a started collective lives until the collective is finished, before the first step that reads its result.
/// 2. A step whose kernel works in place stores its result over an operand of the same size that is not needed
///    afterwards.
/// 3. An output of an elementwise loop may overwrite any input of its kind that this loop is the last to read (an
///    updated weight). Nothing else is put into such an output (match_inputs.hpp).
/// 4. A value from outside that a loop reads lives until the loop ends. The next value of a carried value is computed
///    in the memory of the carried value if that is not read any more; otherwise it is copied there. Results of
///    branches are treated in the same way. If an elementwise loop computes the next value while the carried value is
///    still read, as in a stencil, nothing is copied. The two values alternate between two places; the number of
///    iterations done determines the place of each.
/// 5. Values that one message reduces together are contiguous in the arena. Their memory is held from the first
///    operand's computation until the last result dies. Inputs, outputs and carried values are not in the arena.
/// 6. First fit: at each step, the results and the scratch memory get the lowest free gap. Then the memory of dead
///    values is freed.
class memory_planner {
 public:
  constexpr memory_planner(plan& p, vec<int> base) : plan_(p), tables_(plan_view(p)), base_(base), storage_(std::move(base)) {
    const auto count = p.values.size();
    first_.resize(count, -1);
    last_.resize(count, -1);
    fixed_.resize(count, 0);
    written_.resize(count, -1);
    is_kept_.resize(p.slots.size(), 0);
    message_.resize(count, -1);
    other_.resize(count, -1);
    is_known_.resize(p.steps.size(), 0);
    dying_.resize(p.steps.size(), -1);
    gaps_.push_back(gap{0, std::int64_t{1} << 62});
  }

  constexpr void run() {
    for (std::size_t k = 0; k < plan_.inputs.size(); ++k)
      settle(plan_.inputs[k], {memory_place::kind::input, static_cast<std::int64_t>(k)});
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k)
      settle(plan_.outputs[k], {memory_place::kind::output, static_cast<std::int64_t>(k)});
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
      const auto& s = plan_.steps[i];
      for (int k = 0; k < s.results.count; ++k)
        if (auto& first = first_[root(slot(s.results, k))]; first < 0) first = i;
      for (int k = 0; k < s.operands.count; ++k) {
        const int v = root(slot(s.operands, k)), m = plan_.values[v].step;
        if (last_[v] < 0 && m >= 0 && is_started(plan_, plan_.steps[m]) &&
            !facts_of(plan_.steps[m]).works_in_place(plan_.steps[m]))
          if (int& held = last_[root(slot(plan_.steps[m].operands, 0))]; held < i - 1) held = i - 1;
        last_[v] = i;
      }
      has_regions_ = has_regions_ || facts_of(s).role >= step_role::loop_begin;
    }
    if (has_regions_) live_through_loops();
    input_matcher(plan_, storage_, first_, last_, keeps_input_).run();
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i)
      if (is_joined(plan_.steps[i])) join_message(i);
    const int count = static_cast<int>(plan_.steps.size());
    if (has_regions_) {
      for (int i = count - 1; i >= 0; --i) {
        if (facts_of(plan_.steps[i]).role == step_role::updates_a_part) work_in_place(i);
        if (ends_branch(plan_.steps[i])) give_in_place(i);
      }
      for (int i = count - 1; i >= 0; --i)
        if (ends_iteration(plan_.steps[i])) carry_in_place(i);
    }
    for (int i = count - 1; i >= 0; --i) work_in_place(i);
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) allocate(i);
    for (int v = 0; v < static_cast<int>(plan_.values.size()); ++v) plan_.values[v].where = plan_.values[root(v)].where;
    for (const auto& t : turns_) place_by_turns(t);
    for (auto& v : plan_.values) {
      if (v.counter < 0) continue;
      v.where.row_bytes = v.row_bytes;
      v.where.row_at = plan_.values[v.counter].where.at;
    }
  }

 private:
  constexpr int root(int v) {
    while (storage_[v] != v) {  // chains of steps that work in place are long: halve the path at each visit
      storage_[v] = storage_[storage_[v]];
      v = storage_[v];
    }
    return v;
  }
  [[nodiscard]] constexpr int slot(const table_range& range, int k) const { return plan_.slots[range.begin + k]; }
  [[nodiscard]] constexpr std::int64_t size_of(int v) const {
    const auto& value = plan_.values[v];
    return elements(value.local) * bytes_of(value.type);
  }
  constexpr void settle(int v, memory_place where) {
    plan_.values[root(v)].where = where;
    fixed_[root(v)] = 1;
  }

  /// Returns true if an output must hold no other value before it is computed: see input_matcher.
  [[nodiscard]] constexpr bool keeps_input(int v) const {
    const auto& where = plan_.values[v].where;
    return where.where == memory_place::kind::output && keeps_input_[where.at] != 0;
  }

  /// Lets an operand that is not needed after step `i` share the memory of the result. Steps are visited last first,
  /// so that a chain of such steps uses one place.
  constexpr void work_in_place(int i) {
    const auto& s = plan_.steps[i];
    const bool is_body = facts_of(s).role == step_role::loop_begin;  // values that are read there live until its end
    const int end = is_body ? s.target : i;
    if (!facts_of(s).works_in_place(s) || (s.target >= 0 && !is_body)) return;
    for (int r = 0; r < s.results.count; ++r) written_[root(slot(s.results, r))] = i;
    int from[5]{};  // by element width, of up to 16 bytes: the first operand that may still fit
    for (int r = 0; r < s.results.count; ++r) {
      const int result = root(slot(s.results, r));
      if (keeps_input(result) || (has_regions_ && first_[result] != i)) continue;
      int& first = from[bytes_of(plan_.values[result].type) / 4];
      while (first < s.operands.count) {
        const int k = first++;  // taken below, or it never fits: results of one width have one size
        const int operand = root(slot(s.operands, k));
        if (fixed_[operand] != 0 || last_[operand] != end || first_[operand] < 0 || other_[operand] >= 0) continue;
        if (size_of(operand) != size_of(result) || written_[operand] == i) continue;
        if (bytes_of(plan_.values[operand].type) != bytes_of(plan_.values[result].type)) continue;  // fewer elements: a reduction
        if (!can_alias(i, k) || !may_share(operand, result)) continue;
        storage_[operand] = result;
        first_[result] = first_[operand];
        if (last_[result] < i) last_[result] = i;
        break;
      }
    }
  }
  /// Returns true if step `i`, which works in place, has read each element of operand `k` before it writes there. The
  /// same must hold for other operands in that memory.
  [[nodiscard]] constexpr bool can_alias(int i, int k) {
    const auto& s = plan_.steps[i];
    std::uint8_t* const kept = is_kept_.data() + s.operands.begin;
    if (is_known_[i] == 0) {
      is_known_[i] = 1;
      facts_of(s).mark_kept(tables_, s, kept);
    }
    if (kept[k] != 0) return false;
    for (int o = 0; o < s.operands.count; ++o)
      if (kept[o] != 0 && root(slot(s.operands, o)) == root(slot(s.operands, k))) return false;
    return true;
  }

  // ---- messages of several values ----

  /// Stores each result of a joined collective in the memory of its operand, which has no other users: see
  /// collective_joiner.
  constexpr void join_message(int i) {
    const auto& s = plan_.steps[i];
    for (int k = 0; k < s.operands.count; ++k) {
      const int operand = root(slot(s.operands, k));
      const int result = root(slot(s.results, k));
      storage_[operand] = result;
      first_[result] = first_[operand];
      message_[result] = i;
    }
  }
  /// Returns true if two values of the same size may share memory. A value in a message has a fixed place there, and
  /// can be in one message only.
  constexpr bool may_share(int from, int to) {
    const int message = message_[from];
    if (message < 0) return true;
    if (fixed_[to] != 0 || message_[to] >= 0) return false;
    message_[to] = message;
    return true;
  }

  /// Places all values of the message of step `i`.
  constexpr void allocate_message(int i) {
    const auto& s = plan_.steps[i];
    std::int64_t bytes = 0;
    int last = i;
    for (int k = 0; k < s.results.count; ++k) {
      const int v = root(slot(s.results, k));
      bytes += size_of(v);
      if (last < last_[v]) last = last_[v];
    }
    std::int64_t begin = take(bytes, last);
    for (int k = 0; k < s.results.count; ++k) {
      const int v = root(slot(s.results, k));
      plan_.values[v].where = {memory_place::kind::arena, begin};
      begin += size_of(v);
    }
  }

  // ---- loops and conditionals ----

  /// Return true for a step with a target that hands on a value of a body: of the loop, or conditional, that begins at
  /// the target.
  [[nodiscard]] constexpr bool ends_iteration(const plan_step& s) const { return ends_body(s) && of_loop(s); }
  [[nodiscard]] constexpr bool ends_branch(const plan_step& s) const { return ends_body(s) && !of_loop(s); }
  [[nodiscard]] static constexpr bool ends_body(const plan_step& s) {
    return s.target >= 0 && facts_of(s).role == step_role::hands_on;
  }
  [[nodiscard]] constexpr bool of_loop(const plan_step& s) const {
    return facts_of(plan_.steps[s.target]).role == step_role::loop_begin;
  }

  constexpr void live_through_loops() {
    vec<int> loops;
    const auto live_until = [this](int v, int i) {
      auto& last = last_[root(v)];
      if (last < i) last = i;
    };
    for (int i = 0; i < static_cast<int>(plan_.steps.size()); ++i) {
      const auto& s = plan_.steps[i];
      const auto role = facts_of(s).role;
      if (role == step_role::loop_begin) {
        loops.push_back(i);
        for (int k = 0; k < s.results.count; ++k) live_until(slot(s.results, k), s.target);
      }
      if (role == step_role::loop_end) loops.pop_back();
      for (int k = 0; k < s.operands.count; ++k)
        for (const int loop : loops)
          if (first_[root(slot(s.operands, k))] < loop) live_until(slot(s.operands, k), plan_.steps[loop].target);
      for (int k = 0; k < s.results.count; ++k) live_until(slot(s.results, k), i);  // both branches write their results
      for (int k = 0; k < s.results.count; ++k)                                     // a carried value
        for (const int loop : loops)
          if (first_[root(slot(s.results, k))] < loop) live_until(slot(s.results, k), plan_.steps[loop].target);
    }
  }

  /// Lets a branch compute its value in the memory of the conditional's result.
  constexpr void give_in_place(int i) {
    const auto& s = plan_.steps[i];
    const int given = root(slot(s.operands, 0));
    const int result = root(slot(s.results, 0));
    if (given == result || message_[given] >= 0 || fixed_[given] != 0 || last_[given] != i || first_[given] <= s.target) return;
    storage_[given] = result;
    if (first_[given] < first_[result]) first_[result] = first_[given];
  }

  /// Lets a loop compute the next value in the memory of the carried value, if that is not read any more.
  constexpr void carry_in_place(int i) {
    const auto& s = plan_.steps[i];
    const int next = root(slot(s.operands, 0));
    const int carried = root(slot(s.results, 0));
    if (next == carried || message_[next] >= 0 || fixed_[next] != 0 || first_[next] <= s.target) return;
    if (other_[next] >= 0 || other_[carried] >= 0) return;
    const int made = first_[next];
    int inner_end = -1;  // of the outermost loop inside this loop
    for (int k = s.target + 1; k < i; ++k) {
      const auto& step = plan_.steps[k];
      if (facts_of(step).role == step_role::loop_begin && k > inner_end) inner_end = step.target;
      for (int o = 0; o < step.operands.count; ++o) {
        if (root(slot(step.operands, o)) != carried) continue;
        if ((k < inner_end ? inner_end : k) > made || (k == made && (!facts_of(step).works_in_place(step) || !can_alias(k, o))))
          return take_turns(i, carried, next);
      }
    }
    storage_[next] = carried;
    if (last_[carried] < last_[next]) last_[carried] = last_[next];
  }

  /// A carried value and its next value, of the loop that begins at step `loop`. The loop counter determines the place
  /// of each.
  struct turn_takers {
    int carried = 0;
    int next = 0;
    int loop = 0;
  };
  /// Lets the two values alternate between two places. Nothing else may share the memory of the carried value after
  /// the loop has begun, or between iterations of an enclosing loop.
  constexpr void take_turns(int i, int carried, int next) {
    const auto& s = plan_.steps[i];
    const bool is_own = carried == base_[slot(s.results, 0)] && message_[carried] < 0;
    if (!is_own || facts_of(plan_.steps[first_[next]]).role != step_role::fuses_operators) return;
    for (int k = first_[carried]; k < s.target; ++k)
      if (facts_of(plan_.steps[k]).role == step_role::loop_begin && plan_.steps[k].target > i) return;
    turns_.push_back(turn_takers{carried, next, s.target});
    other_[carried] = next;
    other_[next] = carried;
    int last = last_[carried];
    if (last < last_[next]) last = last_[next];
    for (const int v : {carried, next, root(slot(plan_.steps[s.target].results, 0))})
      if (last_[v] < last) last_[v] = last;
    first_[next] = first_[carried];
    plan_.slots[s.operands.begin] = slot(s.results, 0);
  }
  /// Places the two values so that a carried output is in its own memory after the last iteration.
  constexpr void place_by_turns(const turn_takers& t) {
    const auto& loop = plan_.steps[t.loop];
    const memory_place own = plan_.values[t.carried].where, others = plan_.values[t.next].where;
    const bool is_own_last = own.where != memory_place::kind::output || loop.trips % 2 == 0;
    const memory_place first = is_own_last ? own : others, second = is_own_last ? others : own;
    const auto alternate = [&](memory_place even, const memory_place& odd) {
      even.other = odd.where;
      even.other_at = odd.at;
      even.trips_at = plan_.values[root(slot(loop.results, 0))].where.at;
      return even;
    };
    for (int v = 0; v < static_cast<int>(plan_.values.size()); ++v) {
      auto& value = plan_.values[v];
      const int step = base_[v] == t.carried ? value.step : plan_.values[base_[v]].step;
      const bool is_before = v != t.carried && step >= 0 && step < t.loop;
      if (root(v) == t.carried) value.where = is_before ? first : alternate(first, second);
      if (root(v) == t.next) value.where = alternate(second, first);
    }
  }

  struct gap {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct region {
    gap where;
    int next = -1;  // the next region that dies after the same step
  };

  /// Returns the lowest free place, which stays taken until after step `last`.
  constexpr std::int64_t take(std::int64_t bytes, int last) {
    constexpr std::int64_t line = 64;
    bytes = (bytes + line - 1) / line * line;
    if (bytes == 0) return 0;
    std::size_t i = 0;
    while (gaps_[i].end - gaps_[i].begin < bytes) ++i;
    const std::int64_t begin = gaps_[i].begin;
    gaps_[i].begin += bytes;
    if (gaps_[i].begin == gaps_[i].end) gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(i));
    regions_.push_back(region{gap{begin, begin + bytes}, dying_[last]});
    dying_[last] = static_cast<int>(regions_.size()) - 1;
    if (begin + bytes > plan_.arena_bytes) plan_.arena_bytes = begin + bytes;
    return begin;
  }
  constexpr void give_back(const gap& g) {
    std::size_t i = 0;  // the first gap after it
    for (std::size_t n = gaps_.size(); n > 0;) {
      const std::size_t half = n / 2;
      if (gaps_[i + half].begin < g.end) {
        i += half + 1;
        n -= half + 1;
      } else {
        n = half;
      }
    }
    const bool touches_next = gaps_[i].begin == g.end;  // the last gap has no end
    const bool touches_last = i > 0 && gaps_[i - 1].end == g.begin;
    if (touches_next && touches_last) {
      gaps_[i - 1].end = gaps_[i].end;
      gaps_.erase(gaps_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (touches_next) {
      gaps_[i].begin = g.begin;
    } else if (touches_last) {
      gaps_[i - 1].end = g.end;
    } else {
      gaps_.insert(gaps_.begin() + static_cast<std::ptrdiff_t>(i), g);
    }
  }

  constexpr void allocate(int i) {
    auto& s = plan_.steps[i];
    for (int r = 0; r < s.results.count; ++r) {
      const int v = root(slot(s.results, r));
      if (const int other = other_[v]; other >= 0 && plan_.values[other].where.where == memory_place::kind::none)
        plan_.values[other].where = {memory_place::kind::arena, take(size_of(other), last_[other])};
      auto& where = plan_.values[v].where;
      if (where.where != memory_place::kind::none) continue;
      if (message_[v] >= 0) {
        allocate_message(message_[v]);
        continue;
      }
      where = {memory_place::kind::arena, take(size_of(v), last_[v] < i ? i : last_[v])};
    }
    if (const auto bytes = facts_of(s).scratch_bytes(tables_, s); bytes > 0) s.scratch = take(bytes, i);
    for (int r = dying_[i]; r >= 0; r = regions_[r].next) give_back(regions_[r].where);
  }

  plan& plan_;
  table_views tables_;             // the tables of the steps
  vec<int> base_;                  // by value: the value whose memory it names
  vec<int> storage_;               // by value: the value whose memory it shares
  vec<int> first_;                 // by root: the step that computes it
  vec<int> last_;                  // by root: the last step that reads it
  vec<std::uint8_t> fixed_;        // by root: an input or output
  vec<std::uint8_t> keeps_input_;  // by output
  vec<int> message_;               // by root: the step that reduces it together with others; -1: none
  vec<int> other_;                 // by root: the value that it alternates with; -1: none
  vec<turn_takers> turns_;
  vec<int> written_;            // by root: the last visited step that has it as a result
  vec<std::uint8_t> is_known_;  // by step: is_kept_ is set for its operands
  vec<std::uint8_t> is_kept_;   // by slot: an operand that no result may overwrite
  vec<gap> gaps_;               // free places in the arena, by begin; the last has no end
  vec<region> regions_;
  vec<int> dying_;  // by step: the first of the regions that are free after it
  bool has_regions_ = false;
};

constexpr void place_in_memory(plan& p, vec<int> base) { memory_planner(p, std::move(base)).run(); }

/// Stores in every step the axes over which devices communicate, and the number of messages that one device sends. The
/// bytes are stored already. Users of the plan (explain, budgets) read these numbers and need not include the code
/// that counts.
constexpr void note_traffic(plan& p) {
  const plan_view view(p);
  for (auto& s : p.steps) {
    s.axes = facts_of(s).axes(view, s);
    s.messages = communicates(s) ? facts_of(s).messages(view, s) : 0;
  }
}

/// Returns true if a new order makes a plan better: it needs less memory, and no output loses the input whose memory
/// it may use.
constexpr bool is_smaller(const plan_view& ordered, const plan_view& as_it_was) {
  for (std::size_t k = 0; k < ordered.shared_inputs.size(); ++k)
    if (as_it_was.shared_inputs[k] >= 0 && ordered.shared_inputs[k] < 0) return false;
  return ordered.arena_bytes < as_it_was.arena_bytes;
}

}  // namespace gspmd::detail
