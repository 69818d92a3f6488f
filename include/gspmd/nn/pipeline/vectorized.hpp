// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/nn/detail/stages.hpp"
#include "gspmd/ops/loops.hpp"

namespace gspmd {
namespace detail {

/// True if `pipeline` runs the schedule.
template <class Schedule>
inline constexpr bool runs_as_loop = Schedule::runs_vectorized;

/// Returns the number of ticks until the first stage has run all forward passes of a schedule.
template <class Schedule>
constexpr std::int64_t forward_ticks(const Schedule& s) {
  const std::int64_t last = s.microbatches - 1;
  return last / s.stages * s.stages * s.rounds + (s.rounds - 1) * s.stages + last % s.stages + 1;
}

template <dim_spec Axis, class Stage, class Schedule>
struct vectorized_pipeline : stages_on<Axis, Stage, Schedule> {
  template <class Weights, class Data>
  constexpr Data operator()(const Weights& weights, const Data& xs) const {
    if constexpr (!vectorized_pipeline::template is_stage<Weights, Data>()) {
      return xs;
    } else {
      graph* const g = graph_of(weights, xs);
      return g == nullptr || !this->fits(*g, weights, xs) ? xs : run(*g, weights, xs);
    }
  }

 private:
  /// Returns the microbatch that stage 0 processes in a tick. Returns an arbitrary number if stage 0 is idle.
  constexpr value microbatch_at(value tick) const {
    const std::int64_t stages = this->schedule.stages, rounds = this->schedule.rounds;
    if (rounds == 1) return tick;
    const value turn = this->here(tick) / this->here(stages * rounds), place = fmod(this->here(tick), this->here(stages));
    return this->here(this->here(turn) * this->here(stages)) + this->here(place);
  }

  /// Returns the weights of round `r` of all stages.
  template <class Weights>
  constexpr Weights weights_of(const Weights& weights, std::int64_t r) const {
    if (this->schedule.rounds == 1) return weights;
    return transform_leaves(
        [&](value w) {
          extents first(w.rank(), 0), last = w.shape(), shape;
          first[1] = r;
          last[1] = r + 1;
          for (int d = 0; d < w.rank(); ++d)
            if (d != 1) shape.push_back(w.shape()[d]);
          return reshape(slice(w, as_integers(first), as_integers(last), {}, this->at), as_integers(shape), this->at);
        },
        weights);
  }
  /// Returns the weights of the round that each stage is in. Factors of 0 and 1 select them instead of an index. So the
  /// gradients are added up on the device that computes them, and are reduced after the loop.
  template <class Weights>
  constexpr Weights weights_now(const std::vector<Weights>& by_round, value round) const {
    if (by_round.size() == 1) return by_round[0];
    Weights now = by_round[0];
    for (std::size_t r = 0; r < by_round.size(); ++r) {
      const value is_in = equal(this->here(round), this->here(static_cast<std::int64_t>(r)));
      now = transform_leaves(
          [&](value w, value sum) {
            const int mask = add_elementwise(*w.graph(), code_of<cast_op>, {is_in.id()}, this->at, w.type());
            const value part =
                this->here(w) * this->here(along_stages(made(*w.graph(), mask, w.type(), is_in.shape()), w, this->at));
            return r == 0 ? part : this->here(sum) + this->here(part);
          },
          by_round[r], now);
    }
    return now;
  }

  template <class Weights, class Data>
  constexpr Data run(graph& g, const Weights& weights, const Data& xs) const {
    const std::int64_t stages = this->schedule.stages, rounds = this->schedule.rounds;
    const location line = this->at;
    const auto here = [line](auto x) { return operand(x, line); };
    const value place = this->places(xs);
    std::vector<Weights> by_round;
    for (std::int64_t r = 0; r < rounds; ++r) by_round.push_back(weights_of(weights, r));
    const auto body = [&](value tick, const Data& arrived, const Data& results) {
      // Stage s now processes the microbatch that stage 0 processed s ticks ago. The offset of stages * rounds keeps
      // `since` positive.
      const value since = here(here(tick) + here(stages * rounds)) - here(place);
      const value round = fmod(here(here(since) / here(stages)), here(rounds));
      const value part = here(here(round) * here(stages)) + here(place);
      const value is_entering = bitwise_and(here(equal(here(place), here(0))), here(equal(here(round), here(0))));
      const Data in = this->entering(xs, microbatch_at(tick), is_entering, arrived);
      const Data out = this->stages_of(weights_now(by_round, round), in, part);
      const Data next = transform_leaves(
          [&](value v) { return this->placed(rounds > 1 ? roll(v, 1, along(0), line) : shift(v, -1, along(0), line)); }, out);
      // A result that the last stage writes too early is overwritten later by the microbatch that the row belongs to.
      const value leaving = microbatch_at(here(tick) - here(stages - 1));
      const Data kept =
          transform_leaves([&](value all, value row) { return this->with_row(g, all, row, leaving); }, results, out);
      return std::tuple{next, kept};
    };
    const trip_count ticks{forward_ticks(this->schedule) + stages - 1, line};
    const auto all = fori_loop(ticks, body, this->copies(g, xs), this->empty_rows(g, xs));
    return transform_leaves([&](value rows) { return this->of_stage(rows, place, stages - 1); }, std::get<1>(all));
  }
};

}  // namespace detail

/// Returns a function of (weights, xs) that passes microbatches through all stages of a pipeline.
///
/// `stage(w, x)` is one stage. It takes the weights of a stage and a microbatch, and returns the x of the next stage,
/// of the same type and shape. A stage can also be `stage(w, x, part)`: `part` is an s64, round * stages + stage. The
/// result equals that of a loop over all parts. Schedules: gpipe and circular. Other schedules start backward passes
/// before all forward passes are done; use pipeline_step for them.
///
/// vmap computes the stages together, with their dim split over `Axis`. Completion decides about the other dims, so the
/// batch and features can be split within a stage over other axes. A loop runs over the ticks: microbatches + stages -
/// 1 with gpipe. In an idle tick a stage computes on old data and its result is not used. The gradient of that result
/// is multiplied by 0. So each stage and its gradient must be finite on each microbatch that enters, and on the results
/// of other stages for it. With rounds, all weights must be finite, because factors of 0 and 1 select the weights of a
/// round. `grad` differentiates it: the backward pass is the reversed loop, which recomputes each stage from its x. So
/// a stage keeps only the x of each microbatch.
///
/// **Shapes.** Weights [stages, ...], or [stages, rounds, ...] if the schedule has rounds; xs and the result
/// [microbatches, ...]. Groups of values work too.
/// **Communication.** In each tick one collective_permute of a microbatch to the next stage, and the same in the
/// gradient. With rounds, the last stage sends to the first. In addition, once: a reduction over `Axis` of the result
/// (from the last stage) into the required sharding, and the same for the gradient by xs. Each device adds up its
/// gradients by the weights over the ticks. They are reduced once, after the loop. The sum has the type of the weights,
/// as in every loop. If the weights are bf16 or f16, pass them as float and convert them in the stage.
/// **Errors.** At compile time: stages, microbatches or rounds that do not fit the schedule; a stage that returns
/// another type or shape.
/// **Example.**
///
///     auto y = pipeline<"stage">([](auto w, auto x) { return tanh(einsum<"bd,df->bf">(x, w)); }, gpipe{4, 8})(w, xs);
///
/// **Source.** GSPMD 3.3 (shifting buffer, circular schedule); Huang et al., GPipe, 2019.
template <dim_spec Axis, class Stage, class Schedule>
constexpr auto pipeline(Stage stage, Schedule schedule, location at = location::current()) {
  static_assert(
      detail::runs_as_loop<Schedule>,
      "gspmd: pipeline: runs gpipe and circular, whose backward passes come after all forward ones; pipeline_step, which "
      "is given the loss, runs others");
  return detail::vectorized_pipeline<Axis, Stage, Schedule>{{std::move(stage), schedule, at, "pipeline"}};
}

}  // namespace gspmd
