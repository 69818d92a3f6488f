// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/pipeline/stages.hpp"

namespace gspmd {
namespace detail {

/// Whether `pipeline` runs a schedule.
template <class Schedule>
inline constexpr bool runs_as_loop = Schedule::runs_vectorized;

/// How many ticks the first stage takes for all forward passes of a schedule.
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
  /// The microbatch that stage 0 is at in a tick; any number where it is at none.
  constexpr value microbatch_at(value tick) const {
    const std::int64_t stages = this->schedule.stages, rounds = this->schedule.rounds;
    if (rounds == 1) return tick;
    const value turn = this->here(tick) / this->here(stages * rounds), place = remainder(this->here(tick), this->here(stages));
    return this->here(this->here(turn) * this->here(stages)) + this->here(place);
  }

  /// The weights of round `r` of all stages.
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
  /// Those of the round that each stage is in. They are chosen and not looked up: so their gradients are added up where they are made, and
  /// reduced after the loop.
  template <class Weights>
  constexpr Weights weights_now(const std::vector<Weights>& by_round, value round) const {
    if (by_round.size() == 1) return by_round[0];
    Weights now = by_round[0];
    for (std::size_t r = 0; r < by_round.size(); ++r) {
      const value is_in = equal(this->here(round), this->here(static_cast<std::int64_t>(r)));
      now = transform_leaves(
          [&](value w, value sum) {
            const int mask = add_elementwise(*w.graph(), code_of<convert_op>, {is_in.id()}, this->at, w.type());
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
      // Stage s is where stage 0 was s ticks before; before its first microbatch, in the turn before.
      const value since = here(here(tick) + here(stages * rounds)) - here(place);
      const value round = remainder(here(here(since) / here(stages)), here(rounds));
      const value part = here(here(round) * here(stages)) + here(place);
      const value is_entering = logical_and(here(equal(here(place), here(0))), here(equal(here(round), here(0))));
      const Data in = this->entering(xs, microbatch_at(tick), is_entering, arrived);
      const Data out = this->stages_of(weights_now(by_round, round), in, part);
      const Data next =
          transform_leaves([&](value v) { return this->placed(rounds > 1 ? roll(v, 1, 0, line) : shift(v, 0, -1, line)); }, out);
      // A result that the last stage makes too early is written over later, by the microbatch whose place it is.
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

/// Brings microbatches through all stages: a function of (weights, xs), where every weight is [stages, ...], or
/// [stages, rounds, ...] where the schedule has rounds, and xs [microbatches, ...]; groups of values too. `stage(w, x)` is one stage, on
/// weights without these dims and one microbatch; it returns the next stage's x, of the same type and shape. stage(w, x, part) gets the
/// number of its part of the layers besides, round * stages + stage, an s64. Part by part the result is that of a loop over the stages.
///
///     auto y = pipeline<"stage">([](auto w, auto x) { return tanh(einsum<"bd,df->bf">(x, w)); }, gpipe{4, 8})(w, xs);
///
/// The stages are computed together, by vmap, with their dim split over `Axis`; other dims lie as completion finds, so that batch and
/// features may be split within a stage over other axes. A loop goes over the ticks, of gpipe microbatches + stages - 1; in a tick with
/// nothing to do a stage computes on what is there, and nobody reads what it makes; what it adds to a gradient is 0 times the gradient of
/// that. So every stage must be a number, with its gradient, on any microbatch that enters and on what other stages make of it. With rounds
/// all weights must be finite: those of a round are chosen by factors 0 and 1. Schedules: gpipe and circular; the others are refused, since they go backward before all of forward is done (pipeline_step). grad goes through it: the backward pass is the loop backwards, which computes each stage again from its x, so that of
/// each microbatch a stage keeps its x alone.
///
/// Communication: in each tick one collective_permute from stage to stage (round the end where there are rounds), of a microbatch, and as
/// much in the gradient. Besides, once: the result, which the last stage has, by a reduction over `Axis` into the sharding that it is needed
/// in; likewise the gradient by xs. Gradients of weights are added up over the ticks where they are made, and reduced once.
/// Errors, at compile time: stages, microbatches and rounds that do not fit the schedule, a stage that returns another type or shape.
/// Source: GSPMD 3.3 (shifting buffer, circular schedule); Huang et al., GPipe, 2019.
template <dim_spec Axis, class Stage, class Schedule>
constexpr auto pipeline(Stage stage, Schedule schedule, location at = location::current()) {
  static_assert(
      detail::runs_as_loop<Schedule>,
      "gspmd: pipeline: runs gpipe and circular, whose backward passes come after all forward ones; pipeline_step, which "
      "is given the loss, runs others");
  return detail::vectorized_pipeline<Axis, Stage, Schedule>{{std::move(stage), schedule, at, "pipeline"}};
}

}  // namespace gspmd
