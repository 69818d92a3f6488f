// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gspmd/error.hpp"
#include "gspmd/nn/pipeline/schedule.hpp"

/// The time of each pass of a pipeline: the bubbles and memory of a schedule, and a drawing.
namespace gspmd {

/// The ticks that a pass through a stage's layers of a round takes. Set `backward` to 3 if it recomputes the forward
/// pass.
struct pipeline_ticks {
  std::int64_t forward = 1, backward = 2;
};

/// A pass and its first tick.
struct timed_work {
  pipeline_work work;
  std::int64_t begin = 0;
};

/// The times of all passes of a schedule. Messages take no time in this model.
class pipeline_timetable {
 public:
  constexpr pipeline_timetable(std::int64_t microbatches, std::int64_t rounds, pipeline_ticks each,
                               const detail::constant_vector<detail::constant_vector<pipeline_work>>& orders)
      : microbatches_(microbatches), rounds_(rounds), each_(each), stages_(orders.size()) {
    if (const auto what = detail::misfit_of("the schedule", static_cast<std::int64_t>(orders.size()), microbatches, rounds);
        !what.empty())
      throw error("timetable: " + std::string(what.view()));
    ends_.resize(2 * parts(), -1);
    detail::constant_vector<std::size_t> next(orders.size(), 0);
    detail::constant_vector<std::int64_t> free(orders.size(), 0);
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (std::size_t s = 0; s < orders.size(); ++s)
        while (next[s] < orders[s].size()) {
          const pipeline_work w = orders[s][next[s]];
          if (!is_one(w) || ends_[place(w.pass, w.microbatch, part_of(w, s))] >= 0) refuse(orders);
          const std::int64_t ready = ready_at(w, s);
          if (ready < 0) break;
          const std::int64_t begin = std::max(ready, free[s]);
          stages_[s].push_back({w, begin});
          free[s] = begin + length(w);
          ends_[place(w.pass, w.microbatch, part_of(w, s))] = free[s];
          total_ = std::max(total_, free[s]);
          ++next[s];
          goes_on = true;
        }
    }
    // Each pass that ran belongs to the schedule and ran once. So the schedule is complete if the number of passes is
    // right.
    for (std::size_t s = 0; s < orders.size(); ++s)
      if (next[s] < orders[s].size() || 2 * parts() != next[s] * orders.size()) refuse(orders);
  }

  [[nodiscard]] constexpr std::int64_t ticks() const { return total_; }
  [[nodiscard]] constexpr const detail::constant_vector<timed_work>& stage(std::int64_t s) const {
    return stages_[static_cast<std::size_t>(s)];
  }

  /// Returns the idle fraction of all stages' time.
  [[nodiscard]] constexpr double bubble_ratio() const {
    std::int64_t busy = 0;
    for (const auto& works : stages_)
      for (const auto& w : works) busy += length(w.work);
    const auto all = total_ * static_cast<std::int64_t>(stages_.size());
    return all == 0 ? 0 : static_cast<double>(all - busy) / static_cast<double>(all);
  }
  /// Returns the most microbatches whose activations stage `s` holds at one time, each for the layers of a round. A
  /// stage holds activations from the forward pass to the end of the backward pass.
  [[nodiscard]] constexpr std::int64_t activations(std::int64_t s) const {
    std::int64_t held = 0, most = 0;
    for (const auto& w : stage(s)) {
      held += w.work.pass == pipeline_pass::forward ? 1 : -1;
      most = std::max(most, held);
    }
    return most;
  }
  /// Returns the number of activations and gradients that are sent between stages.
  [[nodiscard]] constexpr std::int64_t messages() const {
    const auto parts_of_all = static_cast<std::int64_t>(stages_.size()) * rounds_;
    return stages_.size() < 2 ? 0 : 2 * microbatches_ * (parts_of_all - 1);
  }

  /// Returns a drawing with one line for each stage. A tick is a column, as wide as the widest name. `3` is the forward
  /// pass of microbatch 3, and `-3` its backward pass. With rounds, the names are `3a`, `3b` and so on. A dot is an
  /// idle tick. An underscore continues a pass.
  ///
  ///     gpipe{2, 2} -> stage 0  0  1  .  .  . -1  _ -0  _
  ///                    stage 1  .  0  1 -1  _ -0  _  .  .
  [[nodiscard]] std::string drawing() const {
    const auto name = [&](const pipeline_work& w) {
      return (w.pass == pipeline_pass::backward ? "-" : "") + std::to_string(w.microbatch) +
             (rounds_ > 1 ? std::string(1, static_cast<char>('a' + w.round % 26)) : "");
    };
    std::size_t width = 1;
    for (const auto& works : stages_)
      for (const auto& w : works) width = std::max(width, name(w.work).size());
    const auto padded = [&](const std::string& cell) { return std::string(width + 1 - cell.size(), ' ') + cell; };
    std::string text_lines;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      text_lines += "stage " + std::to_string(s);
      std::int64_t now = 0;
      for (const auto& w : stages_[s]) {
        for (; now < w.begin; ++now) text_lines += padded(".");
        text_lines += padded(name(w.work));
        for (++now; now < w.begin + length(w.work); ++now) text_lines += padded("_");
      }
      for (; now < total_; ++now) text_lines += padded(".");
      text_lines += '\n';
    }
    return text_lines;
  }

 private:
  [[nodiscard]] constexpr std::size_t parts() const { return static_cast<std::size_t>(microbatches_ * rounds_) * stages_.size(); }
  /// Returns true if the schedule has this microbatch and this round.
  [[nodiscard]] constexpr bool is_one(const pipeline_work& w) const {
    return w.microbatch >= 0 && w.microbatch < microbatches_ && w.round >= 0 && w.round < rounds_;
  }
  /// Throws the error of an order: a pass that the schedule does not have, that occurs twice or never, or that precedes
  /// a pass it depends on.
  [[noreturn]] void refuse(const detail::constant_vector<detail::constant_vector<pipeline_work>>& orders) const {
    const auto stage = [](std::size_t s) { return "timetable: stage " + std::to_string(s); };
    const auto passes = [&](std::size_t s, const pipeline_work& w, const char* often) {
      return stage(s) + often + (w.pass == pipeline_pass::forward ? " runs forward" : " runs backward") + " with microbatch " +
             std::to_string(w.microbatch) + (rounds_ > 1 ? " in round " + std::to_string(w.round) : "");
    };
    const std::string remedy =
        "; let works(stage) have each pass of each microbatch" + std::string(rounds_ > 1 ? " and round" : "") + " once";
    for (std::size_t s = 0; s < orders.size(); ++s) {
      detail::constant_vector<int> times(2 * parts(), 0);
      for (const auto& w : orders[s]) {
        if (!is_one(w))
          throw error(passes(s, w, "") + (rounds_ > 1 ? "" : " in round " + std::to_string(w.round)) + ", and there are " +
                      std::to_string(microbatches_) + " microbatches and " + std::to_string(rounds_) +
                      " rounds; count both from 0");
        if (++times[place(w.pass, w.microbatch, part_of(w, s))] > 1) throw error(passes(s, w, "") + " twice" + remedy);
      }
      for (const auto pass : {pipeline_pass::forward, pipeline_pass::backward})
        for (std::int64_t m = 0; m < microbatches_; ++m)
          for (std::int64_t r = 0; r < rounds_; ++r)
            if (const pipeline_work w{pass, m, r}; times[place(pass, m, part_of(w, s))] == 0)
              throw error(passes(s, w, " never") + remedy);
    }
    std::size_t waits = 0;
    while (waits + 1 < orders.size() && stages_[waits].size() == orders[waits].size()) ++waits;
    throw error(stage(waits) + " waits for a pass that waits for it; order passes so that each follows those it needs");
  }
  [[nodiscard]] constexpr std::int64_t part_of(const pipeline_work& w, std::size_t s) const {
    return w.round * static_cast<std::int64_t>(stages_.size()) + static_cast<std::int64_t>(s);
  }
  [[nodiscard]] constexpr std::size_t place(pipeline_pass pass, std::int64_t microbatch, std::int64_t part) const {
    const auto row = static_cast<std::int64_t>(stages_.size()) * rounds_;
    return (pass == pipeline_pass::forward ? 0 : parts()) + static_cast<std::size_t>(microbatch * row + part);
  }
  [[nodiscard]] constexpr std::int64_t length(const pipeline_work& w) const {
    return w.pass == pipeline_pass::forward ? each_.forward : each_.backward;
  }
  /// Returns the first tick with all inputs of a pass ready, or -1 if they are not ready yet.
  [[nodiscard]] constexpr std::int64_t ready_at(const pipeline_work& w, std::size_t s) const {
    const std::int64_t part = part_of(w, s), last = static_cast<std::int64_t>(stages_.size()) * rounds_ - 1;
    const auto end = [&](pipeline_pass pass, std::int64_t of) { return ends_[place(pass, w.microbatch, of)]; };
    if (w.pass == pipeline_pass::forward) return part == 0 ? 0 : end(pipeline_pass::forward, part - 1);
    const std::int64_t own = end(pipeline_pass::forward, part);
    if (part == last || own < 0) return own;
    const std::int64_t next = end(pipeline_pass::backward, part + 1);
    return next < 0 ? next : std::max(own, next);
  }

  std::int64_t microbatches_, rounds_;
  pipeline_ticks each_;
  detail::constant_vector<detail::constant_vector<timed_work>> stages_;
  detail::constant_vector<std::int64_t> ends_;
  std::int64_t total_ = 0;
};

/// Returns the time of each pass of `schedule`: gpipe, circular, one_forward_one_backward, interleaved, or your own
/// struct with the same members. Each stage runs its passes in their order, each as soon as its inputs are ready.
///
/// **Errors.** Throws gspmd::error, or fails to compile in a constant: a schedule without stages, microbatches or
/// rounds; a stage that does not have each pass of each microbatch and round once; an order that makes stages wait for
/// each other.
/// **Example.**
///
///     static_assert(timetable(one_forward_one_backward{.stages = 4, .microbatches = 16}).activations(0) == 4);
///     std::puts(timetable(circular{.stages = 4, .microbatches = 4, .rounds = 2}).drawing().c_str());
template <class Schedule>
constexpr pipeline_timetable timetable(const Schedule& schedule, pipeline_ticks each = {}) {
  if (const detail::text what = schedule.misfit(); !what.empty()) throw error("timetable: " + std::string(what.view()));
  detail::constant_vector<detail::constant_vector<pipeline_work>> orders;
  for (std::int64_t s = 0; s < schedule.stages; ++s) orders.push_back(schedule.works(s));
  return {schedule.microbatches, schedule.rounds, each, orders};
}

}  // namespace gspmd
