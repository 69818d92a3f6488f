// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/kernel_facts.hpp"
#include "gspmd/detail/passes/order/overlap_started.hpp"
#include "gspmd/detail/passes/place/match_inputs.hpp"
#include "gspmd/detail/support/vec.hpp"

namespace gspmd::detail {

/// Gives every value of a plan its place: inputs and outputs lie in the caller's memory, all others at fixed offsets in one
/// arena per device.
///
/// 1. A value lives from the step that makes it to the last step that reads it, or a reshape of it. What a started collective reads
///    lives until that is finished, where the first step stands that reads what it brings.
/// 2. A step whose kernel works in place gives its result the place of an operand of that size that dies there.
/// 3. An output that an elementwise loop makes may lie over any input of its kind that this loop is the last to read (an updated
///    weight): nothing else is put into such an output (match_inputs.hpp).
/// 4. What a loop reads from outside lives until the loop ends. What follows a carried value in the next iteration is made in
///    its memory where that value is not read any more; else it is copied there. Likewise what the branches give. What an
///    elementwise loop makes of a carried value that is read still, as a stencil does, is not copied: the two take turns in two
///    places, of which the number of trips done tells which one is whose.
/// 5. What one message reduces together lies in one piece of the arena, each value behind the one before it. The piece is held
///    from when the first of them is made until the last of the results dies; inputs, outputs and carried values lie outside of the arena.
/// 6. First fit: at each step the results and the scratch get the lowest gap that is free, then what died is given back.
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
    while (storage_[v] != v) {  // chains of steps that work in place are long: halve the way at each visit
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

  /// An output in which nothing else lies before it is made: see input_matcher.
  [[nodiscard]] constexpr bool keeps_input(int v) const {
    const auto& where = plan_.values[v].where;
    return where.where == memory_place::kind::output && keeps_input_[where.at] != 0;
  }

  /// Lets an operand that step `i` makes no longer needed share the memory of the result. Visited last step first, so that a
  /// chain of such steps ends up in one place.
  constexpr void work_in_place(int i) {
    const auto& s = plan_.steps[i];
    const bool is_body = facts_of(s).role == step_role::loop_begin;  // what is read there lives until its end
    const int end = is_body ? s.target : i;
    if (!facts_of(s).works_in_place(s) || (s.target >= 0 && !is_body)) return;
    for (int r = 0; r < s.results.count; ++r) written_[root(slot(s.results, r))] = i;
    int from[5]{};  // by width of an element, of up to 16 bytes: the operands before this one are of no use to such results
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
        if (!may_overwrite(i, k) || !may_share(operand, result)) continue;
        storage_[operand] = result;
        first_[result] = first_[operand];
        if (last_[result] < i) last_[result] = i;
        break;
      }
    }
  }
  /// True when step `i`, which works in place, is done with each element of operand `k`, and of what lies there too, before it
  /// writes there.
  [[nodiscard]] constexpr bool may_overwrite(int i, int k) {
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

  /// Nobody else reads the operands, and each result lies where its operand lay: see collective_joiner.
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
  /// Whether two values of the same size may be one: what lies in a message has its place, which can be in one message only.
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

  /// A step with a target that hands on what a body makes: of the loop, or conditional, that begins there.
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
      for (int k = 0; k < s.results.count; ++k) live_until(slot(s.results, k), i);  // both branches write what they give
      for (int k = 0; k < s.results.count; ++k)                                     // a carried value
        for (const int loop : loops)
          if (first_[root(slot(s.results, k))] < loop) live_until(slot(s.results, k), plan_.steps[loop].target);
    }
  }

  /// Makes what a branch gives in the memory where it is wanted.
  constexpr void give_in_place(int i) {
    const auto& s = plan_.steps[i];
    const int given = root(slot(s.operands, 0));
    const int result = root(slot(s.results, 0));
    if (given == result || message_[given] >= 0 || fixed_[given] != 0 || last_[given] != i || first_[given] <= s.target) return;
    storage_[given] = result;
    if (first_[given] < first_[result]) first_[result] = first_[given];
  }

  /// Makes what follows a carried value in its memory, if that is not read any more.
  constexpr void carry_in_place(int i) {
    const auto& s = plan_.steps[i];
    const int next = root(slot(s.operands, 0));
    const int carried = root(slot(s.results, 0));
    if (next == carried || message_[next] >= 0 || fixed_[next] != 0 || first_[next] <= s.target) return;
    if (other_[next] >= 0 || other_[carried] >= 0) return;
    const int made = first_[next];
    int inner_end = -1;  // of the outermost loop inside this one
    for (int k = s.target + 1; k < i; ++k) {
      const auto& step = plan_.steps[k];
      if (facts_of(step).role == step_role::loop_begin && k > inner_end) inner_end = step.target;
      for (int o = 0; o < step.operands.count; ++o) {
        if (root(slot(step.operands, o)) != carried) continue;
        if ((k < inner_end ? inner_end : k) > made ||
            (k == made && (!facts_of(step).works_in_place(step) || !may_overwrite(k, o))))
          return take_turns(i, carried, next);
      }
    }
    storage_[next] = carried;
    if (last_[carried] < last_[next]) last_[carried] = last_[next];
  }

  /// A carried value and what follows it, of the loop that begins at step `loop`; the counter tells whose turn it is.
  struct turn_takers {
    int carried = 0;
    int next = 0;
    int loop = 0;
  };
  /// Lets them take turns, if nothing else shares the memory of the carried value after the loop has begun, or from one trip of a
  /// loop around it to the next.
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
  /// An output that is carried lies in its own memory after the last trip.
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
    int next = -1;  // that dies after the same step
  };

  /// The lowest free place, until after step `last`.
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
    std::size_t i = 0;  // the first gap behind it
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
  table_views tables_;             // that the steps refer to
  vec<int> base_;                  // by value: whose memory it names
  vec<int> storage_;               // by value: whose memory it shares
  vec<int> first_;                 // by root: the step that makes it
  vec<int> last_;                  // by root: the last step that reads it
  vec<std::uint8_t> fixed_;        // by root: an input or output
  vec<std::uint8_t> keeps_input_;  // by output
  vec<int> message_;               // by root: the step that reduces it together with others; -1: none
  vec<int> other_;                 // by root: with which it takes turns; -1: none
  vec<turn_takers> turns_;
  vec<int> written_;            // by root: the last visited step that it is a result of
  vec<std::uint8_t> is_known_;  // by step: is_kept_ holds its operands
  vec<std::uint8_t> is_kept_;   // by slot: an operand whose place no result may take
  vec<gap> gaps_;               // free places in the arena, by begin; the last has no end
  vec<region> regions_;
  vec<int> dying_;  // by step: the regions that are free after it begin with this one
  bool has_regions_ = false;
};

constexpr void place_in_memory(plan& p, vec<int> base) { memory_planner(p, std::move(base)).run(); }

/// Notes in every step over which axes devices communicate and how many messages one of them sends; the bytes are there already. Whoever
/// reads the plan, explain or a budget, reads these numbers and does not need what counts them.
constexpr void note_traffic(plan& p) {
  const plan_view view(p);
  for (auto& s : p.steps) {
    s.axes = facts_of(s).axes(view, s);
    s.messages = communicates(s) ? facts_of(s).messages(view, s) : 0;
  }
}

/// Whether a new order makes a plan better: less memory, and no output has lost the input whose memory it may be given.
constexpr bool is_smaller(const plan_view& ordered, const plan_view& as_it_was) {
  for (std::size_t k = 0; k < ordered.shared_inputs.size(); ++k)
    if (as_it_was.shared_inputs[k] >= 0 && ordered.shared_inputs[k] < 0) return false;
  return ordered.arena_bytes < as_it_was.arena_bytes;
}

}  // namespace gspmd::detail
