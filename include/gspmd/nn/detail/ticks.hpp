// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gspmd/nn/detail/turns.hpp"
#include "gspmd/nn/pipeline/timetable.hpp"

/// A timetable for the loops of a pipeline. Each pass takes one tick. For each stage and tick the timetable has the
/// pass and the memory slots that the pass reads. It also has the slots for the messages that arrive at the end of the
/// tick.
namespace gspmd::detail {

/// The work of a stage in a tick. `up` is the slot for the message from the previous stage, or for the only message of
/// the tick. `down` is the slot for the message from the next stage. If no used message arrives, the slot is a free
/// one.
struct stage_tick {
  enum kind : std::uint8_t { idle, forward, backward };
  kind does = idle;
  std::int64_t microbatch = 0, round = 0;
  std::int64_t x = 0, dy = 0;  // the slots that the pass reads
  std::int64_t up = 0, down = 0;
};

/// Consecutive ticks whose messages repeat with a period. In a phase, the stages in `up` send to the next stage, and
/// the stages in `down` send to the previous stage.
struct tick_segment {
  using stage_set =
      constant_vector<std::int64_t>;  // 0 or 1 by stage; Clang rejects libstdc++'s vectors of bool and char in constants
  struct phase {
    stage_set up, down;
    bool is_one = false;  // no stage sends or receives twice: all sends form one message
  };
  std::int64_t begin = 0, end = 0;
  bool goes_forward = false, goes_backward = false;
  constant_vector<phase> phases;
  [[nodiscard]] constexpr std::int64_t period() const { return static_cast<std::int64_t>(phases.size()); }
};

template <class Schedule>
class tick_table {
 public:
  explicit constexpr tick_table(const Schedule& by) : stages_(by.stages), rounds_(by.rounds), times_(timetable(by, {1, 1})) {
    // Interleaves from tick 0 if all ticks allow it. Otherwise interleaves from the first tick with a backward pass.
    fill(beginnings_in_turns(times_, by, 0));
    if (first_back_ <= last_there_ && !take_turns(0, ticks() / 2 * 2)) fill(beginnings_in_turns(times_, by, first_back_));
    cut();
    for (std::int64_t s = 0; s < stages_; ++s) place(s, by.microbatches);
  }

  [[nodiscard]] constexpr std::int64_t ticks() const { return times_.ticks(); }
  [[nodiscard]] constexpr const stage_tick& at(std::int64_t t, std::int64_t s) const {
    return ticks_[static_cast<std::size_t>(s)][static_cast<std::size_t>(t)];
  }
  /// Returns the number of activations and gradients that a stage has slots for.
  [[nodiscard]] constexpr std::int64_t depth() const { return depth_; }
  [[nodiscard]] constexpr const constant_vector<tick_segment>& segments() const { return segments_; }
  /// Returns the number of messages that a device sends, including messages that are not read.
  [[nodiscard]] constexpr std::int64_t messages() const {
    std::int64_t sum = 0;
    for (const auto& g : segments_)
      for (std::int64_t t = g.begin; t < g.end; ++t) {
        const auto& p = phase_at(t);
        const int ways = (any(p.up) ? 1 : 0) + (any(p.down) ? 1 : 0);
        sum += p.is_one && ways > 1 ? 1 : ways;
      }
    return sum;
  }
  static constexpr bool any(const tick_segment::stage_set& which) {
    for (const auto is : which)
      if (is != 0) return true;
    return false;
  }

 private:
  constexpr stage_tick& tick(std::int64_t t, std::int64_t s) {
    return ticks_[static_cast<std::size_t>(s)][static_cast<std::size_t>(t)];
  }
  [[nodiscard]] constexpr std::int64_t before(std::int64_t s) const { return (s + stages_ - 1) % stages_; }
  [[nodiscard]] constexpr std::int64_t next(std::int64_t s) const { return (s + 1) % stages_; }
  /// Returns true if the pass sends its result to another stage. The forward pass of the last part and the backward
  /// pass of the first part send nothing.
  [[nodiscard]] constexpr bool sends(const stage_tick& w, std::int64_t s, stage_tick::kind way) const {
    if (w.does != way) return false;
    return way == stage_tick::forward ? w.round * stages_ + s + 1 < stages_ * rounds_ : w.round * stages_ + s > 0;
  }

  /// Assigns a slot to each activation and gradient that a stage receives. A slot is free again after the backward pass
  /// that reads it.
  constexpr void place(std::int64_t s, std::int64_t microbatches) {
    struct held {
      std::int64_t microbatch, round, slot;
    };
    const auto index = [&](std::int64_t m, std::int64_t r) { return static_cast<std::size_t>(r * microbatches + m); };
    constant_vector<std::int64_t> x(static_cast<std::size_t>(microbatches * rounds_), -1), dy = x;
    constant_vector<std::int64_t> is_free;
    const auto take = [&] {
      std::size_t k = 0;
      while (k < is_free.size() && is_free[k] == 0) ++k;
      if (k == is_free.size()) is_free.push_back(0);
      is_free[k] = 0;
      return static_cast<std::int64_t>(k);
    };
    const auto give = [&](std::int64_t slot) {
      if (slot >= 0) is_free[static_cast<std::size_t>(slot)] = 1;
    };
    for (std::int64_t t = 0; t < ticks(); ++t) {
      auto& own = tick(t, s);
      if (own.does != stage_tick::idle) {
        own.x = std::max<std::int64_t>(x[index(own.microbatch, own.round)], 0);
        own.dy = std::max<std::int64_t>(dy[index(own.microbatch, own.round)], 0);
      }
      if (own.does == stage_tick::backward) give(x[index(own.microbatch, own.round)]), give(dy[index(own.microbatch, own.round)]);
      const auto& from_before = at(t, before(s));
      const auto& from_next = at(t, next(s));
      const bool gets_x = sends(from_before, before(s), stage_tick::forward),
                 gets_dy = sends(from_next, next(s), stage_tick::backward);
      if (gets_x) own.up = x[index(from_before.microbatch, from_before.round + (s == 0 ? 1 : 0))] = take();
      if (gets_dy) own.down = dy[index(from_next.microbatch, from_next.round - (s + 1 == stages_ ? 1 : 0))] = take();
      const auto& p = phase_at(t);
      const auto anywhere = [&] {
        const auto slot = take();
        give(slot);
        return slot;
      };
      if (p.is_one) own.up = gets_x ? own.up : gets_dy ? own.down : any(p.up) || any(p.down) ? anywhere() : 0;
      else if (!gets_x && any(p.up)) own.up = anywhere();
      if (!p.is_one && !gets_dy && any(p.down)) own.down = anywhere();
      depth_ = std::max(depth_, static_cast<std::int64_t>(is_free.size()));
    }
  }

  [[nodiscard]] constexpr const tick_segment::phase& phase_at(std::int64_t t) const {
    std::size_t k = 0;
    while (segments_[k].end <= t) ++k;
    return segments_[k].phases[static_cast<std::size_t>((t - segments_[k].begin) % segments_[k].period())];
  }
  [[nodiscard]] constexpr tick_segment::phase phase_of(std::int64_t begin, std::int64_t end, std::int64_t step) const {
    const auto all = static_cast<std::size_t>(stages_);
    tick_segment::phase p{tick_segment::stage_set(all, 0), tick_segment::stage_set(all, 0)};
    for (std::int64_t t = begin; t < end; t += step)
      for (std::int64_t s = 0; s < stages_; ++s) {
        const auto k = static_cast<std::size_t>(s);
        if (sends(at(t, s), s, stage_tick::forward)) p.up[k] = 1;
        if (sends(at(t, s), s, stage_tick::backward)) p.down[k] = 1;
      }
    p.is_one = true;
    for (std::int64_t s = 0; s < stages_; ++s) {
      const auto k = static_cast<std::size_t>(s);
      p.is_one = p.is_one && (p.up[k] == 0 || p.down[k] == 0) &&
                 (p.up[static_cast<std::size_t>(before(s))] == 0 || p.down[static_cast<std::size_t>(next(s))] == 0);
    }
    return p;
  }
  constexpr void add(std::int64_t begin, std::int64_t end, std::int64_t period) {
    if (begin >= end) return;
    tick_segment g{begin, end, false, false, {}};
    for (std::int64_t p = 0; p < period; ++p) g.phases.push_back(phase_of(begin + p, end, period));
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t s = 0; s < stages_; ++s) {
        g.goes_forward = g.goes_forward || at(t, s).does == stage_tick::forward;
        g.goes_backward = g.goes_backward || at(t, s).does == stage_tick::backward;
      }
    segments_.push_back(g);
  }
  /// Divides the ticks into segments. The longest run of ticks with alternating neighbours is one segment of period 2,
  /// with one message for each tick. The ticks before and after the run are divided by whether any stage runs forward
  /// or backward passes.
  constexpr void cut() {
    const std::int64_t both = last_there_ + 1;
    std::int64_t begin = 0, end = first_back_ < both ? ticks() / 2 * 2 : 0;
    if (!take_turns(begin, end)) {
      end = begin = first_back_;
      for (std::int64_t from = first_back_, to = from + 2; to <= both; ++from) {
        while (to <= both && take_turns(from, to)) to += 2;
        if (to - 2 - from > std::max<std::int64_t>(end - begin, 2)) begin = from, end = to - 2;
        to = std::max(to - 1, from + 3);
      }
    }
    add(0, std::min(first_back_, begin), 1);
    add(first_back_, begin, 1);
    add(begin, end, 2);
    add(std::max(end, first_back_), both, 1);
    add(std::max(end, both), ticks(), 1);
  }
  [[nodiscard]] constexpr bool take_turns(std::int64_t begin, std::int64_t end) const {
    return begin < end && phase_of(begin, end, 2).is_one && phase_of(begin + 1, end, 2).is_one;
  }

  constexpr void fill(const constant_vector<constant_vector<std::int64_t>>& begins) {
    ticks_.assign(static_cast<std::size_t>(stages_), constant_vector<stage_tick>(static_cast<std::size_t>(times_.ticks())));
    first_back_ = ticks();
    last_there_ = -1;
    for (std::int64_t s = 0; s < stages_; ++s) {
      const auto& begin = begins[static_cast<std::size_t>(s)];
      for (std::size_t k = 0; k < begin.size(); ++k) {
        const pipeline_work& w = times_.stage(s)[k].work;
        const bool goes_back = w.pass == pipeline_pass::backward;
        auto& t = tick(begin[k], s);
        t.does = goes_back ? stage_tick::backward : stage_tick::forward;
        t.microbatch = w.microbatch;
        t.round = w.round;
        if (goes_back) first_back_ = std::min(first_back_, begin[k]);
        else last_there_ = std::max(last_there_, begin[k]);
      }
    }
  }

  std::int64_t stages_, rounds_, depth_ = 1, first_back_ = 0, last_there_ = -1;
  pipeline_timetable times_;
  constant_vector<constant_vector<stage_tick>> ticks_;  // by stage
  constant_vector<tick_segment> segments_;
};

}  // namespace gspmd::detail
