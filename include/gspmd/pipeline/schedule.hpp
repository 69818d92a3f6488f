// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gspmd/detail/support/text.hpp"

/// Schedules of pipelines as data: what each stage does, in which order. All of them can be asked for their facts (timetable.hpp);
/// `pipeline` runs those that say so by `runs_vectorized`, pipeline_step all of them.
namespace gspmd {

enum class pipeline_pass : std::uint8_t { forward, backward };

/// The forward or backward pass of one microbatch through what a stage has of one round. Stage s has in round r the part r * stages + s of
/// all layers, of stages * rounds parts.
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

/// The order in which a stage gets at the microbatches of all rounds, as many at a time as there are stages: so many enter in a row, and
/// when the last of them has entered the first comes back from the last stage.
constexpr detail::constant_vector<pipeline_work> in_turns(pipeline_pass pass, std::int64_t stages, std::int64_t microbatches,
                                                          std::int64_t rounds) {
  detail::constant_vector<pipeline_work> works;
  for (std::int64_t first = 0; first < microbatches; first += stages)
    for (std::int64_t r = 0; r < rounds; ++r)
      for (std::int64_t m = first; m < first + stages && m < microbatches; ++m)
        works.push_back({pass, m, pass == pipeline_pass::forward ? r : rounds - 1 - r});
  return works;
}

/// All forward passes, then all backward passes, the last one first.
constexpr detail::constant_vector<pipeline_work> there_and_back(std::int64_t stages, std::int64_t microbatches,
                                                                std::int64_t rounds) {
  detail::constant_vector<pipeline_work> works = in_turns(pipeline_pass::forward, stages, microbatches, rounds);
  for (std::size_t k = works.size(); k-- > 0;) works.push_back({pipeline_pass::backward, works[k].microbatch, works[k].round});
  return works;
}

/// `ahead` forward passes, then a forward and a backward pass in turn, then the backward passes that are left.
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

/// All microbatches forward, then all backward (Huang et al., GPipe, 2019; GSPMD 3.3). A stage is idle (S-1)/(M+S-1) of the time and holds
/// M microbatches between its passes.
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

/// The same with R rounds: microbatches go round the stages R times, each time through an R-th of a stage's layers (GSPMD 3.3, 5.3). Idle
/// (S-1)/(RM+S-1) of the time where M is a multiple of S, more where not; a stage holds RM microbatches of R-ths of its layers.
struct circular {
  std::int64_t stages = 1, microbatches = 1, rounds = 1;

  static constexpr const char* name = "circular";
  static constexpr bool runs_vectorized = true;
  [[nodiscard]] constexpr detail::text misfit() const { return detail::misfit_of(name, stages, microbatches, rounds); }
  [[nodiscard]] constexpr detail::constant_vector<pipeline_work> works(std::int64_t) const {
    return detail::there_and_back(stages, microbatches, rounds);
  }
};

/// 1F1B: a stage goes backward as soon as it can (Narayanan et al., PipeDream, 2019; Fan et al., DAPPLE, 2021). Idle as long as gpipe, and
/// stage s holds min(M, S - s) microbatches between their passes.
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

/// 1F1B that goes forward as early as it can (Zhuang et al., On optimizing the communication of model parallelism, 2022): when the last
/// stage is at work each stage has a forward and a backward pass in turn, so that stages which take turns together do one of each in a
/// tick. Stage s holds min(M, 2(S-1-s) + 1) microbatches.
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

/// 1F1B over R rounds (Narayanan et al., Megatron-LM, 2021, 2.2): idle (S-1)/(RM+S-1) of the time. M is a multiple of S.
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
