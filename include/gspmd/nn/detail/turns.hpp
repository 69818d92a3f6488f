// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/nn/pipeline/timetable.hpp"

namespace gspmd::detail {

/// Returns the first tick of each pass, by stage. The total number of ticks is that of `times`. After the start of tick
/// `from`, neighbouring stages alternate if the slack of the passes allows it: one runs forward while the other runs
/// backward. Then each tick has one message. Input and output for two stages, two microbatches and `from` = 0 (in the
/// output, stage 0 runs 1 while stage 1 runs -0):
///
///     stage 0  0  1  2  . -0        0  .  1  . -0
///     stage 1  .  0  1 -0  .        .  0 -0  1  .
template <class Schedule>
constexpr constant_vector<constant_vector<std::int64_t>> beginnings_in_turns(const pipeline_timetable& times, const Schedule& by,
                                                                             std::int64_t from) {
  const std::int64_t stages = by.stages, parts = stages * by.rounds, all = by.microbatches * parts;
  const auto pass_of = [&](const pipeline_work& w, std::int64_t part) {
    return static_cast<std::size_t>((w.pass == pipeline_pass::forward ? 0 : all) + w.microbatch * parts + part);
  };
  const auto part_of = [&](const pipeline_work& w, std::int64_t s) { return w.round * stages + s; };
  constant_vector<constant_vector<std::int64_t>> begins(static_cast<std::size_t>(stages));
  std::int64_t first_back = times.ticks(), last_there = -1;
  for (std::int64_t s = 0; s < stages; ++s)
    for (const auto& w : times.stage(s)) {
      begins[static_cast<std::size_t>(s)].push_back(w.begin);
      if (w.work.pass == pipeline_pass::forward) last_there = std::max(last_there, w.begin);
      else first_back = std::min(first_back, w.begin);
    }
  if (last_there < first_back) return begins;

  // The latest tick of each pass: one tick before the latest tick of the stage's next pass, and of the passes that read
  // its result.
  constant_vector<std::int64_t> latest(static_cast<std::size_t>(2 * all), times.ticks() - 1);
  constant_vector<std::size_t> left(static_cast<std::size_t>(stages), 0);
  for (std::int64_t s = 0; s < stages; ++s) left[static_cast<std::size_t>(s)] = times.stage(s).size();
  for (std::int64_t t = times.ticks(); t-- > 0;)
    for (std::int64_t s = 0; s < stages; ++s) {
      const auto& works = times.stage(s);
      std::size_t& k = left[static_cast<std::size_t>(s)];
      if (k == 0 || works[k - 1].begin != t) continue;
      const auto& w = works[--k].work;
      const std::int64_t part = part_of(w, s);
      std::int64_t& last = latest[pass_of(w, part)];
      const auto is_before = [&](const pipeline_work& next, std::int64_t of) {
        last = std::min(last, latest[pass_of(next, of)] - 1);
      };
      if (k + 1 < works.size()) is_before(works[k + 1].work, part_of(works[k + 1].work, s));
      if (w.pass == pipeline_pass::forward) is_before({pipeline_pass::backward, w.microbatch, w.round}, part);
      if (w.pass == pipeline_pass::forward && part + 1 < parts) is_before(w, part + 1);
      if (w.pass == pipeline_pass::backward && part > 0) is_before(w, part - 1);
    }

  // A pass begins when its inputs are ready and the tick has its parity, or when it cannot wait any longer.
  constant_vector<std::int64_t> done(static_cast<std::size_t>(2 * all), -1);
  constant_vector<std::size_t> next(static_cast<std::size_t>(stages), 0);
  for (std::int64_t t = 0; t < times.ticks(); ++t)
    for (std::int64_t s = 0; s < stages; ++s) {
      const auto& works = times.stage(s);
      std::size_t& k = next[static_cast<std::size_t>(s)];
      if (k == works.size()) continue;
      const auto& w = works[k].work;
      const std::int64_t part = part_of(w, s);
      const auto is_there = [&](const pipeline_work& before, std::int64_t of) {
        const auto tick = done[pass_of(before, of)];
        return tick >= 0 && tick < t;
      };
      const bool goes_back = w.pass == pipeline_pass::backward;
      bool is_ready = !goes_back ? part == 0 || is_there(w, part - 1) : part + 1 == parts || is_there(w, part + 1);
      is_ready = is_ready && (!goes_back || is_there({pipeline_pass::forward, w.microbatch, w.round}, part));
      const bool is_its_turn = t < from || (t + first_back + stages - s + (goes_back ? 1 : 0)) % 2 == 0;
      if (!is_ready || (!is_its_turn && t < latest[pass_of(w, part)])) continue;
      done[pass_of(w, part)] = begins[static_cast<std::size_t>(s)][k++] = t;
    }
  return begins;
}

}  // namespace gspmd::detail
