// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/rows.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/pipeline/schedule.hpp"
#include "gspmd/vmap.hpp"

namespace gspmd {
namespace detail {

/// Whether `pipeline` runs a schedule.
template <class Schedule>
inline constexpr bool runs_as_loop = Schedule::runs_vectorized;

/// Whether a stage wants the number of the part of all layers that it computes, after weights and data.
template <class Stage, class Weights, class Data>
inline constexpr bool wants_part = !call_with<const Stage&, const Weights&, const Data&, const value&>::refuses;

/// What a stage returns.
template <class Stage, class Weights, class Data, bool WantsPart = wants_part<Stage, Weights, Data>>
struct stage_call : call_with<const Stage&, const Weights&, const Data&> {};
template <class Stage, class Weights, class Data>
struct stage_call<Stage, Weights, Data, true> : call_with<const Stage&, const Weights&, const Data&, const value&> {};

constexpr value row_of(value x, value index, location at) {
  extents shape;
  for (int d = 1; d < x.rank(); ++d) shape.push_back(x.shape()[d]);
  return made(*x.graph(), add_dynamic_index(*x.graph(), x.id(), index.id(), at), x.type(), shape);
}
constexpr extents with_extent(const extents& shape, std::int64_t first) {
  extents longer = shape;
  longer.insert(0, first);
  return longer;
}
constexpr integers as_integers(const extents& shape) { return {shape.begin(), static_cast<std::size_t>(shape.count)}; }
/// [a, b, ...] for each of n: [n, a, b, ...].
constexpr value for_each_stage(value x, std::int64_t n, location at) {
  extents dims;
  for (int d = 0; d < x.rank(); ++d) dims.push_back(d + 1);
  return broadcast_in_dim(x, as_integers(with_extent(x.shape(), n)), as_integers(dims), at);
}
/// A mask of the stages for the elements of `like`, whose dim 0 they are.
constexpr value along_stages(value of_stages, value like, location at) {
  return broadcast_in_dim(of_stages, as_integers(like.shape()), {0}, at);
}

/// How many ticks the first stage takes for all forward passes of a schedule.
template <class Schedule>
constexpr std::int64_t forward_ticks(const Schedule& s) {
  const std::int64_t last = s.microbatches - 1;
  return last / s.stages * s.stages * s.rounds + (s.rounds - 1) * s.stages + last % s.stages + 1;
}

template <dim_spec Axis, class Stage, class Schedule>
struct vectorized_pipeline {
  Stage stage;
  Schedule schedule;
  location at;

  template <class Weights, class Data>
  constexpr Data operator()(const Weights& weights, const Data& xs) const {
    using call = stage_call<Stage, Weights, Data>;
    if constexpr (!is_values<Weights> || !is_values<Data>) {
      static_assert(written_so<Stage>,
                    "gspmd: pipeline: it is called with the weights of all stages and with the microbatches, values or groups of "
                    "values; capture what is none");
      return xs;
    } else if constexpr (call::refuses) {
      static_assert(written_so<Stage>,
                    "gspmd: pipeline: a stage is called as stage(weights, x), or stage(weights, x, part), with what one stage has");
      return xs;
    } else if constexpr (!call::compiles) {
      return xs;  // a mistake in the stage, which the compiler has reported
    } else if constexpr (!std::is_same_v<typename call::result, Data>) {
      static_assert(written_so<Stage>,
                    "gspmd: pipeline: a stage returns what it gets as x, since the next stage gets that: a value for a value, the "
                    "same group for a group");
      return xs;
    } else {
      graph* const g = graph_of(weights, xs);
      return g == nullptr || !fits(*g, weights, xs) ? xs : run(*g, weights, xs);
    }
  }

 private:
  template <class Weights, class Data>
  constexpr bool fits(graph& g, const Weights& weights, const Data& xs) const {
    if (const text what = schedule.misfit(); !what.empty()) g.fail(at, "pipeline", mistake::extent, what);
    const auto dim_is = [&](const value& x, int dim, std::int64_t extent, const char* what, const char* of) {
      if (g.failed() || (x.rank() > dim && x.shape()[dim] == extent)) return;
      g.fail(at, "pipeline", mistake::extent,
             text(what) << " is " << shape_text(x.shape()) << ", and dim " << dim << " counts the " << extent << ' ' << of);
    };
    for (const value& w : leaves_of(weights)) {
      dim_is(w, 0, schedule.stages, "a weight", "stages");
      if (schedule.rounds > 1) dim_is(w, 1, schedule.rounds, "a weight", "rounds");
    }
    for (const value& x : leaves_of(xs)) dim_is(x, 0, schedule.microbatches, "the data", "microbatches");
    return !g.failed();
  }

  /// Dim `dim`, of stages, over the axis; the others as completion finds best.
  constexpr value placed(value x, int dim = 0) const {
    if (!x.is_valid()) return x;
    resolved_sharding r;
    axis_mask used = 0;
    add_axes(*x.graph()->mesh, Axis.view(), dim, r, used);
    for (int d = 0; d < x.rank(); ++d)
      if (d != dim) r.value.open |= dim_bit(d);
    return annotate(x, r, "pipeline", at);
  }
  template <class Number>
  constexpr operand here(Number x) const {
    return operand(x, at);
  }
  constexpr value zeros(graph& g, dtype type, const extents& shape) const {
    return made(g, add_constant(g, type, shape, 0, 0, at), type, shape);
  }
  /// The microbatch that stage 0 is at in a tick; any number where it is at none.
  constexpr value microbatch_at(value tick) const {
    const std::int64_t stages = schedule.stages, rounds = schedule.rounds;
    if (rounds == 1) return tick;
    const value turn = here(tick) / here(stages * rounds), place = remainder(here(tick), here(stages));
    return here(here(turn) * here(stages)) + here(place);
  }

  /// The weights of round `r` of all stages.
  template <class Weights>
  constexpr Weights weights_of(const Weights& weights, std::int64_t r) const {
    if (schedule.rounds == 1) return weights;
    return transform_leaves(
        [&](value w) {
          extents first(w.rank(), 0), last = w.shape(), shape;
          first[1] = r;
          last[1] = r + 1;
          for (int d = 0; d < w.rank(); ++d)
            if (d != 1) shape.push_back(w.shape()[d]);
          return reshape(slice(w, as_integers(first), as_integers(last), {}, at), as_integers(shape), at);
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
      const value is_in = equal(here(round), here(static_cast<std::int64_t>(r)));
      now = transform_leaves(
          [&](value w, value sum) {
            const int mask = add_elementwise(*w.graph(), opcode::convert, {is_in.id()}, at, w.type());
            const value part = here(w) * here(along_stages(made(*w.graph(), mask, w.type(), is_in.shape()), w, at));
            return r == 0 ? part : here(sum) + here(part);
          },
          by_round[r], now);
    }
    return now;
  }

  /// What each stage makes of what it gets.
  template <class Weights, class Data>
  constexpr Data stages_of(const Weights& weights, const Data& in, value parts) const {
    const auto one = [this](const Weights& w, const Data& x, value part) {
      if constexpr (wants_part<Stage, Weights, Data>) return stage(w, x, part);
      else return stage(w, x);
    };
    Data out = vmap(one, out_dims<>{}, at)(weights, in, parts);
    const auto to = leaves_of(out);
    std::size_t k = 0;
    for (const value& x : leaves_of(in)) {
      const value y = to[k++];
      if (!y.is_valid() || (y.type() == x.type() && y.shape() == x.shape())) continue;
      x.graph()->fail(at, "pipeline", mistake::region,
                      text("for all stages it is given ") << name_of(x.type()) << shape_text(x.shape()) << " and returns "
                                                           << name_of(y.type()) << shape_text(y.shape())
                                                           << "; the next stage gets that, so return the type and shape of x");
      return in;
    }
    return out;
  }

  template <class Weights, class Data>
  constexpr Data run(graph& g, const Weights& weights, const Data& xs) const {
    const std::int64_t stages = schedule.stages, rounds = schedule.rounds;
    const value place = iota<std::int64_t>(leaves_of(xs)[0], {stages}, 0, at);
    // Before its first microbatch a stage computes on a copy of one: on zeros it might give what is no number, with gradients that are none.
    const Data begin = transform_leaves(
        [&](value x) {
          return placed(stop_gradient(for_each_stage(row_of(x, zeros(g, dtype::s64, {}), at), stages, at), at));
        },
        xs);
    const Data nothing = transform_leaves(
        [&](value x) {
          extents shape = x.shape();
          shape.insert(1, stages);
          return placed(zeros(g, x.type(), shape), 1);
        },
        xs);
    std::vector<Weights> by_round;
    for (std::int64_t r = 0; r < rounds; ++r) by_round.push_back(weights_of(weights, r));
    const auto body = [&](value tick, const Data& arrived, const Data& results) {
      // Stage s is where stage 0 was s ticks before; before its first microbatch, in the turn before.
      const value since = here(here(tick) + here(stages * rounds)) - here(place);
      const value round = remainder(here(here(since) / here(stages)), here(rounds));
      const value part = here(here(round) * here(stages)) + here(place);
      const value is_entering = logical_and(here(equal(here(place), here(0))), here(equal(here(round), here(0))));
      const Data in = transform_leaves(
          [&](value x, value before) {
            const value entering = for_each_stage(row_of(x, microbatch_at(tick), at), stages, at);
            return select(here(along_stages(is_entering, before, at)), here(entering), here(before));
          },
          xs, arrived);
      const Data out = transform_leaves([&](value v) { return placed(v); }, stages_of(weights_now(by_round, round), in, part));
      const Data next = transform_leaves(
          [&](value v) { return placed(rounds > 1 ? roll(v, 1, 0, at) : shift(v, 0, -1, at)); }, out);
      // What the last stage makes too early is written over later, by the microbatch whose place it is.
      const value leaving = microbatch_at(here(tick) - here(stages - 1));
      const Data kept = transform_leaves(
          [&](value all, value row) { return made(add_dynamic_update<set_row_op>(g, all.id(), row.id(), leaving.id(), at), all); },
          results, out);
      return std::tuple{next, kept};
    };
    const auto all = fori_loop(trip_count{forward_ticks(schedule) + stages - 1, at}, body, begin, nothing);
    return transform_leaves(
        [&](value of_all) {
          const value is_last = broadcast_in_dim(equal(here(place), here(stages - 1)), as_integers(of_all.shape()), {1}, at);
          return reduce(select(here(is_last), here(of_all), here(zeros_like(of_all, at))), monoid::add, 1, at);
        },
        std::get<1>(all));
  }
};

}  // namespace detail

/// What microbatches become on their way through all stages: a function of (weights, xs), where every weight is [stages, ...], or
/// [stages, rounds, ...] where the schedule has rounds, and xs [microbatches, ...]; groups of values too. `stage(w, x)` is one stage, on
/// weights without these dims and one microbatch; it returns the next stage's x, of the same type and shape. stage(w, x, part) gets the
/// number of its part of the layers besides, round * stages + stage, an s64. Part by part the result is that of a loop over the stages.
///
///     auto y = pipeline<"stage">([](auto w, auto x) { return tanh(einsum<"bd,df->bf">(x, w)); }, gpipe{4, 8})(w, xs);
///
/// The stages are computed together, by vmap, with their dim split over `Axis`; other dims lie as completion finds, so that batch and
/// features may be split within a stage over other axes. A loop goes over the ticks, of gpipe microbatches + stages - 1; in a tick with
/// nothing to do a stage computes on what is there, and nobody reads what it makes. Schedules: gpipe and circular; the others are not run
/// (a compile error). grad goes through it: the backward pass is the loop backwards, which computes each stage again from its x, so that of
/// each microbatch a stage keeps its x alone.
///
/// Communication: in each tick one collective_permute from stage to stage (round the end where there are rounds), of a microbatch, and as
/// much in the gradient. Besides, once: the result, which the last stage has, by a reduction over `Axis` into the sharding that it is needed
/// in; likewise the gradient by xs. Gradients of weights are added up over the ticks where they are made, and reduced once.
/// Errors, at compile time: stages, microbatches and rounds that do not fit the schedule, a stage that returns another type or shape.
/// Source: GSPMD 3.3 (shifting buffer, circular schedule); Huang et al., GPipe, 2019.
template <dim_spec Axis, class Stage, class Schedule>
constexpr auto pipeline(Stage stage, Schedule schedule, location at = location::current()) {
  static_assert(detail::runs_as_loop<Schedule>,
                "gspmd: pipeline: runs gpipe and circular, whose backward passes come after all forward ones; ask timetable about "
                "other schedules");
  return detail::vectorized_pipeline<Axis, Stage, Schedule>{std::move(stage), schedule, at};
}

}  // namespace gspmd
