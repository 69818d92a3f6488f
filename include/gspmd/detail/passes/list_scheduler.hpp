// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace gspmd::detail {

/// Steps and the buffers they touch: what an order must respect, and what it costs. A buffer lies in memory from the first step
/// that touches it to the last one, so that an order and its reverse take the same memory.
struct step_needs {
  struct edge {
    int before = 0;
    int after = 0;
  };
  std::vector<int> touched;            // buffers, step by step, each once
  std::vector<int> touched_from;       // by step, and the end
  std::vector<edge> edges;             // step `before` runs before step `after`
  std::vector<std::int64_t> scratch;   // by step: bytes, while it runs
  std::vector<std::uint8_t> in_place;  // by step: its first buffer, the result, may take the place of one that dies here
  std::vector<std::int64_t> bytes;     // by buffer
  std::vector<std::uint8_t> is_given;  // by buffer: there before the first step
  std::vector<std::uint8_t> is_kept;   // by buffer: there after the last step
  [[nodiscard]] constexpr int count() const { return static_cast<int>(scratch.size()); }
};

/// One pass of list scheduling. Follows a given order, but as soon as a few steps one after the other leave no more memory taken
/// than there was before them, they run at once; of several such runs first the one that takes least while it runs.
///
///   dh, g1, g2, w1 - g1, w2 - g2    ->    dh, g1, w1 - g1, g2, w2 - g2
///
/// Backwards, from the last step to the first, the same rule puts off what takes memory until somebody needs it, and of two
/// operands makes that one first which takes more on the way (Sethi and Ullman 1970; Liu 1987). Every step is looked at a bounded
/// number of times.
class list_scheduler {
 public:
  constexpr list_scheduler(const step_needs& needs, bool backwards) : needs_(needs), backwards_(backwards) {
    const auto steps = at(needs.count());
    missing_.resize(steps, 0);
    after_from_.resize(steps + 1, 0);
    after_.resize(needs.edges.size(), 0);
    for (const auto& e : needs.edges) {
      ++missing_[at(later(e))];
      ++after_from_[at(earlier(e)) + 1];
    }
    for (std::size_t s = 0; s < steps; ++s) after_from_[s + 1] += after_from_[s];
    std::vector<int> next = after_from_;
    for (const auto& e : needs.edges) after_[at(next[at(earlier(e))]++)] = later(e);

    left_.resize(needs.bytes.size(), 0);
    opened_.resize(needs.bytes.size(), 0);
    touching_from_.resize(needs.bytes.size() + 1, 0);
    touching_.resize(needs.touched.size(), 0);
    for (const int b : needs.touched) ++touching_from_[at(b) + 1];
    for (std::size_t b = 0; b < needs.bytes.size(); ++b) {
      left_[b] = touching_from_[b + 1];
      touching_from_[b + 1] += touching_from_[b];
      const bool is_given = needs.is_given[b] != 0;
      const bool is_kept = needs.is_kept[b] != 0;
      opened_[b] = (backwards ? is_kept : is_given) ? 1 : 0;
      if (backwards ? is_given : is_kept) ++left_[b];
    }
    next = touching_from_;
    for (int s = 0; s < needs.count(); ++s)
      for (int t = needs.touched_from[at(s)]; t < needs.touched_from[at(s) + 1]; ++t)
        touching_[at(next[at(needs.touched[at(t)])]++)] = s;
    is_done_.resize(steps, 0);
    looks_left_ = most_looks * needs.count();
  }

  /// The steps in a better order than `given`, or in that one.
  constexpr std::vector<int> run(const std::vector<int>& given) {
    order_.reserve(given.size());
    place_.resize(given.size(), 0);
    for (std::size_t k = 0; k < given.size(); ++k) place_[at(given[k])] = static_cast<int>(backwards_ ? given.size() - 1 - k : k);
    for (std::size_t k = 0; k < given.size(); ++k) {
      const int s = given[backwards_ ? given.size() - 1 - k : k];
      if (missing_[at(s)] == 0) look_at(s);
    }
    for (std::size_t k = 0; k < given.size(); ++k) {
      run_what_frees();
      const int s = given[backwards_ ? given.size() - 1 - k : k];
      if (is_done_[at(s)] == 0) finish(s);
    }
    if (backwards_) std::reverse(order_.begin(), order_.end());
    return std::move(order_);
  }

 private:
  static constexpr int most_looks = 8;   // on average, for each step
  static constexpr int longest_run = 16;
  static constexpr int few = 4;  // steps that still touch a buffer: one of them may lead to its end

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] constexpr int earlier(const step_needs::edge& e) const { return backwards_ ? e.after : e.before; }
  [[nodiscard]] constexpr int later(const step_needs::edge& e) const { return backwards_ ? e.before : e.after; }

  struct change {
    std::int64_t most = 0;   // more than before, while it runs
    std::int64_t after = 0;  // and afterwards
  };
  [[nodiscard]] constexpr change change_of(int s) const {
    std::int64_t opens = 0;
    std::int64_t closes = 0;
    const int first = needs_.touched_from[at(s)];
    const int end = needs_.touched_from[at(s) + 1];
    std::int64_t shared = 0;
    for (int t = first; t < end; ++t) {
      const auto b = at(needs_.touched[at(t)]);
      const bool open = opened_[b] == 0;
      const bool close = left_[b] == 1;
      if (open) opens += needs_.bytes[b];
      if (close) closes += needs_.bytes[b];
      if (open != close && needs_.in_place[at(s)] != 0) {
        const auto r = at(needs_.touched[at(first)]);
        if (t > first && needs_.bytes[b] == needs_.bytes[r] && (opened_[r] == 0) == close && (left_[r] == 1) == open)
          shared = needs_.bytes[r];
      }
    }
    return {opens - shared + needs_.scratch[at(s)], opens - closes};
  }
  constexpr void enter(int s) {
    is_done_[at(s)] = 1;
    for (int t = needs_.touched_from[at(s)]; t < needs_.touched_from[at(s) + 1]; ++t) {
      const auto b = at(needs_.touched[at(t)]);
      --left_[b];
      ++opened_[b];
    }
    for (int e = after_from_[at(s)]; e < after_from_[at(s) + 1]; ++e) --missing_[at(after_[at(e)])];
  }
  constexpr void leave(int s) {
    is_done_[at(s)] = 0;
    for (int t = needs_.touched_from[at(s)]; t < needs_.touched_from[at(s) + 1]; ++t) {
      const auto b = at(needs_.touched[at(t)]);
      ++left_[b];
      --opened_[b];
    }
    for (int e = after_from_[at(s)]; e < after_from_[at(s) + 1]; ++e) ++missing_[at(after_[at(e)])];
  }
  /// What may run now, or may free something now, because `s` has run.
  constexpr void list_touched_by(int s, std::vector<int>& list) const {
    for (int e = after_from_[at(s)]; e < after_from_[at(s) + 1]; ++e)
      if (const int a = after_[at(e)]; missing_[at(a)] == 0 && is_done_[at(a)] == 0) list.push_back(a);
    for (int t = needs_.touched_from[at(s)]; t < needs_.touched_from[at(s) + 1]; ++t) {
      const int b = needs_.touched[at(t)];
      if (left_[at(b)] > few || needs_.bytes[at(b)] == 0) continue;
      for (int u = touching_from_[at(b)]; u < touching_from_[at(b) + 1]; ++u)
        if (const int a = touching_[at(u)]; missing_[at(a)] == 0 && is_done_[at(a)] == 0) list.push_back(a);
    }
  }

  struct run_of_steps {
    std::int64_t most = 0;
    int first = 0;
    int place = 0;
    std::vector<int> steps;  // none: memory grows
  };
  /// The steps from `s` on until memory is no more than before.
  constexpr run_of_steps look(int s) {
    run_of_steps r;
    r.first = s;
    r.place = place_[at(s)];
    std::int64_t now = 0;
    bool is_good = false;
    std::vector<int> next;
    --looks_left_;
    while (true) {
      const change c = change_of(s);
      if (now + c.most > r.most) r.most = now + c.most;
      now += c.after;
      r.steps.push_back(s);
      enter(s);
      is_good = now <= 0;
      if (is_good || static_cast<int>(r.steps.size()) == longest_run) break;
      list_touched_by(s, next);
      s = -1;
      change best;
      for (const int n : next) {
        if (is_done_[at(n)] != 0 || missing_[at(n)] != 0) continue;
        const change d = change_of(n);
        if (s < 0 || d.after < best.after || (d.after == best.after && place_[at(n)] < place_[at(s)])) {
          s = n;
          best = d;
        }
      }
      if (s < 0) break;
    }
    for (std::size_t k = r.steps.size(); k-- > 0;) leave(r.steps[k]);
    if (!is_good) r.steps.clear();
    return r;
  }

  struct entry {
    std::int64_t most = 0;
    int place = 0;
    int step = 0;
    friend constexpr bool operator<(const entry& a, const entry& b) {  // the least is on top of the heap
      return a.most != b.most ? a.most > b.most : a.place > b.place;
    }
  };
  constexpr void look_at(int s) {
    if (looks_left_ <= 0) return;
    const auto r = look(s);
    if (r.steps.empty()) return;
    heap_.push_back(entry{r.most, r.place, s});
    std::push_heap(heap_.begin(), heap_.end());
  }
  constexpr void finish(int s) {
    enter(s);
    order_.push_back(s);
    std::vector<int> next;
    list_touched_by(s, next);
    for (const int n : next) look_at(n);
  }
  constexpr void run_what_frees() {
    while (!heap_.empty()) {
      const entry top = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      if (is_done_[at(top.step)] != 0) continue;
      if (looks_left_ <= 0) return;
      const auto r = look(top.step);
      if (r.steps.empty()) continue;
      if (r.most > top.most && !heap_.empty() && heap_.front().most < r.most) {
        heap_.push_back(entry{r.most, r.place, top.step});
        std::push_heap(heap_.begin(), heap_.end());
        continue;
      }
      for (const int s : r.steps) finish(s);
    }
  }

  const step_needs& needs_;
  bool backwards_;
  std::vector<int> missing_;  // by step: how many have to run before it
  std::vector<int> after_from_;
  std::vector<int> after_;
  std::vector<int> left_;     // by buffer: steps that will touch it
  std::vector<int> opened_;  // by buffer: those that did; it is there if any did
  std::vector<int> touching_from_;
  std::vector<int> touching_;
  std::vector<std::uint8_t> is_done_;
  std::vector<int> place_;  // by step: in the given order
  std::vector<int> order_;
  std::vector<entry> heap_;
  int looks_left_ = 0;
};

/// The most that lies in memory at once.
constexpr std::int64_t peak_of(const step_needs& needs, const std::vector<int>& order) {
  std::vector<int> left(needs.bytes.size(), 0);
  std::vector<std::uint8_t> is_open = needs.is_given;
  for (const int b : needs.touched) ++left[static_cast<std::size_t>(b)];
  std::int64_t now = 0;
  for (std::size_t b = 0; b < left.size(); ++b) {
    if (needs.is_kept[b] != 0) ++left[b];
    if (is_open[b] != 0) now += needs.bytes[b];
  }
  std::int64_t peak = now;
  for (const int i : order) {
    const auto s = static_cast<std::size_t>(i);
    std::int64_t closes = 0;
    std::int64_t result = -1;
    std::int64_t shared = 0;
    for (int t = needs.touched_from[s]; t < needs.touched_from[s + 1]; ++t) {
      const auto b = static_cast<std::size_t>(needs.touched[static_cast<std::size_t>(t)]);
      const bool opens = is_open[b] == 0;
      if (opens) {
        is_open[b] = 1;
        now += needs.bytes[b];
      }
      if (--left[b] == 0) closes += needs.bytes[b];
      if (t == needs.touched_from[s]) {
        if (opens && left[b] > 0 && needs.in_place[s] != 0) result = needs.bytes[b];
      } else if (!opens && left[b] == 0 && needs.bytes[b] == result) {
        shared = result;
      }
    }
    if (now - shared + needs.scratch[s] > peak) peak = now - shared + needs.scratch[s];
    now -= closes;
  }
  return peak;
}

}  // namespace gspmd::detail
