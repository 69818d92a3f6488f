// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/passes/order/step_needs.hpp"
#include "gspmd/detail/support/vec.hpp"
#include "gspmd/detail/support/zeroed.hpp"

namespace gspmd::detail {

/// One pass of list scheduling. It follows the order of the caller. But if a few steps in sequence end with no more
/// memory in use than before them, these steps run immediately. Among several such runs, the run that needs the least
/// memory is first.
///
///   dh, g1, g2, w1 - g1, w2 - g2    ->    dh, g1, w1 - g1, g2, w2 - g2
///
/// Backwards, from the last step to the first, the same rule delays a step that takes memory until its result is
/// needed. It also first computes the operand that needs more memory on the way (Sethi and Ullman 1970; Liu 1987). The
/// work is bounded by a number per step; after that, the rest follows the order of the caller.
// Pointers and few calls: Clang counts calls towards the limit of an evaluation.
class list_scheduler {
 public:
  constexpr list_scheduler(const step_needs& needs, bool backwards)
      : needs_(needs),
        backwards_(backwards),
        steps_(needs.steps),
        touched_from_(needs.touched_from),
        touched_(needs.touched),
        bytes_(needs.bytes),
        memory_(6 * steps_ + 2 + needs.edge_count + 3 * needs.buffers + touched_from_[steps_]) {
    memory_.take_each(steps_, missing_, is_done_, looked_, place_, order_);
    after_from_ = memory_.take(steps_ + 1);
    after_ = memory_.take(needs.edge_count);
    memory_.take_each(needs.buffers, left_, opened_);
    touching_from_ = memory_.take(needs.buffers + 1);
    touching_ = memory_.take(touched_from_[steps_]);
    work_left_ = most_work * steps_;
    list_edges();
    list_touching();
  }
  list_scheduler(const list_scheduler&) = delete;
  list_scheduler& operator=(const list_scheduler&) = delete;

  /// Improves the order of all steps, which must be valid, or leaves it unchanged.
  constexpr void run(int* steps) {
    if (backwards_) std::reverse(steps, steps + steps_);
    for (int k = 0; k < steps_; ++k) place_[steps[k]] = k;
    for (int k = 0; k < steps_; ++k)
      if (missing_[steps[k]] == 0) look_at(steps[k]);
    for (int k = 0; k < steps_; ++k) {
      run_what_frees();
      if (is_done_[steps[k]] != 0) continue;
      run_[0] = steps[k];
      run_count_ = 1;
      enter(steps[k]);
      finish_run();
    }
    for (int k = 0; k < steps_; ++k) steps[backwards_ ? steps_ - 1 - k : k] = order_[k];
  }

 private:
  static constexpr int most_work = 20;  // calls of change_of, on average for each step
  static constexpr int longest_run = 8;
  static constexpr int most_next = 16;  // candidates for the next step of a run
  static constexpr int few = 3;         // steps that still touch a buffer: they may free it soon, so they are candidates

  constexpr void list_edges() {
    int* const from = after_from_ + 1;  // where the next entry is stored
    const step_needs::edge* const edges = needs_.edges;
    for (int e = 0; e < needs_.edge_count; ++e) {
      ++missing_[backwards_ ? edges[e].before : edges[e].after];
      ++place_[backwards_ ? edges[e].after : edges[e].before];
    }
    for (int s = 0; s + 1 < steps_; ++s) from[s + 1] = from[s] + place_[s];
    for (int e = 0; e < needs_.edge_count; ++e)
      after_[from[backwards_ ? edges[e].after : edges[e].before]++] = backwards_ ? edges[e].before : edges[e].after;
  }
  constexpr void list_touching() {
    int* const from = touching_from_ + 1;
    for (int t = 0; t < touched_from_[steps_]; ++t) ++left_[touched_[t]];
    for (int b = 0; b < needs_.buffers; ++b) {
      if (b + 1 < needs_.buffers) from[b + 1] = from[b] + left_[b];
      left_[b] += backwards_ ? needs_.is_given[b] : needs_.is_kept[b];
      opened_[b] = backwards_ ? needs_.is_kept[b] : needs_.is_given[b];
    }
    for (int s = 0; s < steps_; ++s)
      for (int t = touched_from_[s]; t < touched_from_[s + 1]; ++t) touching_[from[touched_[t]]++] = s;
  }

  struct change {
    std::int64_t most = 0;   // bytes more than before, while it runs
    std::int64_t after = 0;  // bytes more than before, afterwards
  };
  constexpr change change_of(int s) {
    --work_left_;
    const int first = touched_from_[s];
    const int end = touched_from_[s + 1];
    std::int64_t opens = 0;
    std::int64_t closes = 0;
    for (int t = first; t < end; ++t) {
      const int b = touched_[t];
      opens += opened_[b] == 0 ? bytes_[b] : 0;
      closes += left_[b] == 1 ? bytes_[b] : 0;
    }
    change c;
    c.after = opens - closes;
    c.most = opens + needs_.scratch[s];
    if (needs_.in_place[s] == 0 || opens == 0 || closes == 0) return c;
    const int r = touched_[first];
    const bool opens_result = opened_[r] == 0;
    if (opens_result == (left_[r] == 1)) return c;
    for (int t = first + 1; t < end; ++t) {
      const int b = touched_[t];
      if (bytes_[b] != bytes_[r] || (opened_[b] == 0) == opens_result || (left_[b] == 1) != opens_result) continue;
      c.most -= bytes_[r];
      break;
    }
    return c;
  }
  /// Runs a step, or undoes it if `by` is -1.
  constexpr void enter(int s, int by = 1) {
    is_done_[s] += by;
    for (int t = touched_from_[s]; t < touched_from_[s + 1]; ++t) opened_[touched_[t]] += by, left_[touched_[t]] -= by;
    for (int e = after_from_[s]; e < after_from_[s + 1]; ++e) missing_[after_[e]] -= by;
  }

  /// Runs steps from `s` on until no more memory is in use than before; run_ lists them. Returns false, with all steps
  /// undone, if memory grows.
  constexpr bool run_from(int s) {
    int next[most_next]{};  // steps that can run now, or can free a buffer now
    int count = 0;
    std::int64_t now = 0;
    change c = change_of(s);
    run_count_ = 0;
    most_ = 0;
    for (;;) {
      if (now + c.most > most_) most_ = now + c.most;
      now += c.after;
      run_[run_count_++] = s;
      enter(s);
      if (now <= 0) return true;
      if (run_count_ == longest_run) break;
      for (int e = after_from_[s]; e < after_from_[s + 1] && count < most_next; ++e)
        if (missing_[after_[e]] == 0 && is_done_[after_[e]] == 0) next[count++] = after_[e];
      for (int t = touched_from_[s]; t < touched_from_[s + 1]; ++t) {
        const int b = touched_[t];
        if (left_[b] > few || left_[b] == 0 || bytes_[b] == 0) continue;
        for (int u = touching_from_[b]; u < touching_from_[b + 1] && count < most_next; ++u)
          if (missing_[touching_[u]] == 0 && is_done_[touching_[u]] == 0) next[count++] = touching_[u];
      }
      s = -1;
      for (int k = 0; k < count; ++k) {
        const int n = next[k];
        if (is_done_[n] != 0 || n == s) continue;
        const change d = change_of(n);
        if (s >= 0 && (d.after > c.after || (d.after == c.after && place_[n] >= place_[s]))) continue;
        s = n;
        c = d;
      }
      if (s < 0) break;
    }
    take_back();
    return false;
  }
  constexpr void take_back() {
    for (int k = run_count_; k-- > 0;) enter(run_[k], -1);
  }

  struct entry {
    std::int64_t most = 0;
    int step = 0;
    int place = 0;
    friend constexpr bool operator<(const entry& a, const entry& b) {  // the smallest is on top of the heap
      return a.most != b.most ? a.most > b.most : a.place > b.place;
    }
  };
  constexpr void look_at(int s) {
    if (looked_[s] == clock_ || work_left_ <= 0) return;
    looked_[s] = clock_;
    if (!run_from(s)) return;
    take_back();
    push(s);
  }
  constexpr void push(int s) {
    heap_.push_back(entry{most_, s, place_[s]});
    std::push_heap(heap_.begin(), heap_.end());
  }
  /// Appends the steps of run_ to the order. Visits the steps again whose gain they may have changed.
  constexpr void finish_run() {
    int steps[longest_run]{};
    const int count = run_count_;
    for (int k = 0; k < count; ++k) order_[done_++] = steps[k] = run_[k];
    ++clock_;
    for (int k = 0; k < count && work_left_ > 0; ++k) {
      const int s = steps[k];
      for (int e = after_from_[s]; e < after_from_[s + 1]; ++e)
        if (missing_[after_[e]] == 0 && is_done_[after_[e]] == 0) look_at(after_[e]);
      for (int t = touched_from_[s]; t < touched_from_[s + 1]; ++t) {
        const int b = touched_[t];
        if (left_[b] > few || left_[b] == 0 || bytes_[b] == 0) continue;
        for (int u = touching_from_[b]; u < touching_from_[b + 1]; ++u)
          if (missing_[touching_[u]] == 0 && is_done_[touching_[u]] == 0) look_at(touching_[u]);
      }
    }
  }
  constexpr void run_what_frees() {
    while (!heap_.empty() && work_left_ > 0) {
      const entry top = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (is_done_[top.step] != 0 || !run_from(top.step)) continue;
      if (most_ > top.most && !heap_.empty() && heap_.front().most < most_) {
        take_back();
        push(top.step);
      } else {
        finish_run();
      }
    }
  }

  const step_needs& needs_;
  bool backwards_;
  int steps_;
  const int* touched_from_;
  const int* touched_;
  const std::int64_t* bytes_;
  zeroed<int> memory_;
  int* missing_ = nullptr;        // by step: the number of steps that must run before it
  int* is_done_ = nullptr;        // by step
  int* looked_ = nullptr;         // by step: the clock of its last visit
  int* place_ = nullptr;          // by step: its position in the order of the caller
  int* order_ = nullptr;          // the new order
  int* after_from_ = nullptr;     // by step: the index of its first entry in after_
  int* after_ = nullptr;          // steps that wait for a step
  int* left_ = nullptr;           // by buffer: steps that will touch it, plus one if it is kept at the end
  int* opened_ = nullptr;         // by buffer: steps that touched it, plus one if it existed at the start
  int* touching_from_ = nullptr;  // by buffer: the index of its first entry in touching_
  int* touching_ = nullptr;       // steps that touch a buffer
  int run_[longest_run]{};        // steps
  int run_count_ = 0;
  std::int64_t most_ = 0;  // the most bytes that run_ adds to the memory in use
  vec<entry> heap_;
  int work_left_ = 0;
  int clock_ = 1;  // runs
  int done_ = 0;   // steps
};

}  // namespace gspmd::detail
