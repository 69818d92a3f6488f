// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/support/text.hpp"

/// Schedules of pipelines as data: the passes of each stage, in order. `timetable` (timetable.hpp) computes the
/// properties of each schedule. `pipeline` runs the schedules with `runs_vectorized`; `pipeline_step` runs all
/// schedules.
namespace gspmd {

/// The direction of a pass of a microbatch.
enum class pipeline_pass : std::uint8_t { forward, backward };

/// The forward or backward pass of one microbatch through the layers that a stage has in a round. All layers are
/// divided into stages * rounds parts. In round r, stage s has part r * stages + s.
struct pipeline_work {
  pipeline_pass pass = pipeline_pass::forward;
  std::int64_t microbatch = 0, round = 0;
  friend constexpr bool operator==(const pipeline_work&, const pipeline_work&) = default;
};

namespace detail {

constexpr text misfit_of(const char* name, std::int64_t stages, std::int64_t microbatches, std::int64_t rounds) {
  text what;
  if (stages < 1 || microbatches < 1 || rounds < 1)
    what << name << " has " << stages << " stages, " << microbatches << " microbatches and " << rounds
         << " rounds; give 1 or more of each";
  return what;
}

/// Returns the order of the passes of a stage over the microbatches of all rounds. Groups of `stages` microbatches
/// enter one after the other. When the last microbatch of a group has entered, the first one returns from the last
/// stage. Backward passes take the rounds in reverse order.
///
///     forward, 2 stages, 4 microbatches, 2 rounds (a, b) -> 0a 1a 0b 1b 2a 3a 2b 3b
constexpr detail::constant_vector<pipeline_work> in_turns(pipeline_pass pass, std::int64_t stages, std::int64_t microbatches,
                                                          std::int64_t rounds) {
  detail::constant_vector<pipeline_work> works;
  for (std::int64_t first = 0; first < microbatches; first += stages)
    for (std::int64_t r = 0; r < rounds; ++r)
      for (std::int64_t m = first; m < first + stages && m < microbatches; ++m)
        works.push_back({pass, m, pass == pipeline_pass::forward ? r : rounds - 1 - r});
  return works;
}

/// Returns all forward passes, then all backward passes in reverse order.
constexpr detail::constant_vector<pipeline_work> there_and_back(std::int64_t stages, std::int64_t microbatches,
                                                                std::int64_t rounds) {
  detail::constant_vector<pipeline_work> works = in_turns(pipeline_pass::forward, stages, microbatches, rounds);
  for (std::size_t k = works.size(); k-- > 0;) works.push_back({pipeline_pass::backward, works[k].microbatch, works[k].round});
  return works;
}

/// Returns `ahead` forward passes, then forward and backward passes alternately, then the remaining backward passes.
///
///     1 stage, 3 microbatches, 1 round, ahead = 1 -> 0 1 -0 2 -1 -2      (-0: the backward pass of microbatch 0)
constexpr detail::constant_vector<pipeline_work> alternating(std::int64_t stages, std::int64_t microbatches, std::int64_t rounds,
                                                             std::int64_t ahead) {
  const auto there = in_turns(pipeline_pass::forward, stages, microbatches, rounds);
  const auto back = in_turns(pipeline_pass::backward, stages, microbatches, rounds);
  const std::size_t all = there.size();
  const std::size_t first = ahead < static_cast<std::int64_t>(all) ? static_cast<std::size_t>(ahead) : all;
  detail::constant_vector<pipeline_work> works;
  for (std::size_t k = 0; k < all + first; ++k) {
    if (k < all) works.push_back(there[k]);
    if (k >= first) works.push_back(back[k - first]);
  }
  return works;
}

}  // namespace detail

/// GPipe: all microbatches forward, then all backward. A stage is idle (S-1)/(M+S-1) of the time and holds M
/// microbatches between the passes.
///
/// **Source.** Huang et al., GPipe, 2019; GSPMD 3.3.
struct gpipe {
  std::int64_t stages = 1, microbatches = 1;

  static constexpr const char* name = "gpipe";
  static constexpr bool runs_vectorized = true;
  static constexpr std::int64_t rounds = 1;
  [[nodiscard]] constexpr detail::text misfit() const { return detail::misfit_of(name, stages, microbatches, rounds); }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t) const {
    return detail::there_and_back(stages, microbatches, rounds);
  }
};

/// GPipe with R rounds: each microbatch passes through all stages R times, each time through 1/R of a stage's layers.
///
/// A stage is idle (S-1)/(RM+S-1) of the time if M is a multiple of S, and longer otherwise. It holds RM microbatches,
/// each for 1/R of its layers.
///
/// **Source.** GSPMD 3.3 and 5.3.
struct circular {
  std::int64_t stages = 1, microbatches = 1, rounds = 1;

  static constexpr const char* name = "circular";
  static constexpr bool runs_vectorized = true;
  [[nodiscard]] constexpr detail::text misfit() const { return detail::misfit_of(name, stages, microbatches, rounds); }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t) const {
    return detail::there_and_back(stages, microbatches, rounds);
  }
};

/// 1F1B: each stage starts a backward pass as soon as possible. It is idle as long as with `gpipe`. Stage s holds
/// min(M, S - s) microbatches between their passes.
///
/// **Source.** Narayanan et al., PipeDream, 2019; Fan et al., DAPPLE, 2021.
struct one_forward_one_backward {
  std::int64_t stages = 1, microbatches = 1;

  static constexpr const char* name = "one_forward_one_backward";
  static constexpr bool runs_vectorized = false;
  static constexpr std::int64_t rounds = 1;
  [[nodiscard]] constexpr detail::text misfit() const { return detail::misfit_of(name, stages, microbatches, rounds); }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t stage) const {
    return detail::alternating(stages, microbatches, rounds, stages - 1 - stage);
  }
};

/// 1F1B with early forward passes: each stage also starts a forward pass as early as possible. Stage s holds min(M,
/// 2(S-1-s) + 1) microbatches.
///
/// When the last stage works, each stage alternates forward and backward passes. So stages that are computed together
/// do one forward and one backward pass in each tick.
///
/// **Source.** Zhuang et al., On optimizing the communication of model parallelism, 2022.
struct eager_one_forward_one_backward {
  std::int64_t stages = 1, microbatches = 1;

  static constexpr const char* name = "eager_one_forward_one_backward";
  static constexpr bool runs_vectorized = false;
  static constexpr std::int64_t rounds = 1;
  [[nodiscard]] constexpr detail::text misfit() const { return detail::misfit_of(name, stages, microbatches, rounds); }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t stage) const {
    return detail::alternating(stages, microbatches, rounds, 2 * (stages - 1 - stage));
  }
};

/// 1F1B over R rounds: idle (S-1)/(RM+S-1) of the time. M must be a multiple of S.
///
/// **Source.** Narayanan et al., Megatron-LM, 2021, section 2.2.
struct interleaved {
  std::int64_t stages = 1, microbatches = 1, rounds = 1;

  static constexpr const char* name = "interleaved";
  static constexpr bool runs_vectorized = false;
  [[nodiscard]] constexpr detail::text misfit() const {
    detail::text what = detail::misfit_of(name, stages, microbatches, rounds);
    if (what.empty() && microbatches % stages != 0)
      what << name << " has " << microbatches << " microbatches, no multiple of its " << stages
           << " stages; give a multiple, or write circular";
    return what;
  }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t stage) const {
    return detail::alternating(stages, microbatches, rounds, 2 * (stages - 1 - stage) + (rounds - 1) * stages);
  }
};

}  // namespace gspmd
