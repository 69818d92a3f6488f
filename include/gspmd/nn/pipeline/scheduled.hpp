// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/modes/manual.hpp"
#include "gspmd/nn/detail/stages.hpp"
#include "gspmd/nn/detail/tick_rows.hpp"
#include "gspmd/nn/detail/ticks.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/transform/grad.hpp"

/// A training step by any schedule. Each device is a stage. In each tick it runs a forward or a backward pass, as in
/// the timetable.
namespace gspmd {
namespace detail {

template <dim_spec Axis, class Stage, class Loss, class Schedule>
struct scheduled_step : stages_on<Axis, Stage, Schedule> {
  using base = stages_on<Axis, Stage, Schedule>;
  Loss loss;

  template <class Weights, class Data, class Targets>
  constexpr std::tuple<value, Weights, Data> operator()(const Weights& weights, const Data& xs, const Targets& targets) const {
    using call = stage_call<Stage, Weights, Data>;
    using of_loss = call_with<const Loss&, const Data&, const Targets&>;
    const std::tuple<value, Weights, Data> refused{leaves_of(xs)[0], weights, xs};
    if constexpr (!base::template is_stage<Weights, Data>()) {
      return refused;
    } else if constexpr (!call::compiles || (!of_loss::compiles && !of_loss::refuses)) {
      return refused;  // a mistake in a function; the compiler has reported it
    } else if constexpr (of_loss::refuses || !is_values<Targets>) {
      static_assert(written_so<Loss>,
                    "gspmd: pipeline_step: the loss is called as loss(y, target), with the result of the last stage and the "
                    "target of one microbatch, and returns one value of rank 0");
      return refused;
    } else {
      graph* const g = graph_of(weights, xs, targets);
      if (g == nullptr || !this->fits_step(*g, weights, xs)) return refused;
      for (const value& t : leaves_of(targets)) this->check_dim(t, 0, this->schedule.microbatches, "the target", "microbatches");
      resolved_sharding stages;
      axis_mask axes = 0;
      add_axes(*g->mesh, Axis.view(), 0, stages, axes);
      if (!stages.problem.empty()) g->fail(this->at, this->op, stages.broken, stages.problem);
      else if (const auto most = std::int64_t{1} << 15;
               this->schedule.rounds * this->schedule.stages > most / this->schedule.microbatches)
        g->fail(this->at, this->op, mistake::extent,
                text(name_of_schedule()) << " has " << this->schedule.microbatches << " microbatches on " << this->schedule.stages
                                         << " stages in " << this->schedule.rounds << " rounds, more than " << most
                                         << " passes forward; give fewer microbatches, of more rows");
      else if (const auto devices = g->mesh->shape.size_of(axes); devices != this->schedule.stages)
        g->fail(this->at, this->op, mistake::extent,
                text(name_of_schedule())
                    << " has " << this->schedule.stages << " stages, and along `" << Axis.view() << "` are " << devices
                    << " devices, and each device is one stage; give a device more layers by stage_of, or rounds");
      return g->failed() ? refused : on_devices(*g, axes, stages.value.layout, weights, xs, targets);
    }
  }

 private:
  static constexpr const char* name_of_schedule() {
    if constexpr (requires { Schedule::name; }) return Schedule::name;
    else return "the schedule";
  }
  template <class Tree, class F>
  static constexpr Tree leaf_by_leaf(const Tree& tree, F f) {
    return transform_leaves(f, tree);
  }
  /// Adds the manual region that contains the work of a device.
  template <class Weights, class Data, class Targets>
  constexpr std::tuple<value, Weights, Data> on_devices(graph& g, axis_mask axes, const sharding& by_stage,
                                                        const Weights& weights, const Data& xs, const Targets& targets) const {
    const dtype of_loss = type_of_loss(g, xs, targets);
    if (g.failed()) return {leaves_of(xs)[0], weights, xs};
    const manual_border edge{g, axes, this->at};
    allow_manual_regions(g);
    sharding everywhere, terms;
    everywhere.replica = axes;
    terms.partial = axes;
    const auto enter = [&](const auto& tree, const sharding& s) {
      return leaf_by_leaf(tree, [&](value v) { return edge.enter(v, s); });
    };
    const Weights own = enter(weights, by_stage);
    const Data all_xs = enter(xs, everywhere);
    const Targets all_targets = enter(targets, everywhere);
    std::tuple<value, Weights, Data> found = [&] {
      const local_scope inside(g, g.open_local | axes);
      auto [sum, dws, dxs] = run(g, of_loss, own, all_xs, all_targets);
      const auto as_terms = [&](value v) { return local::to_partial<Axis>(v, this->at); };
      return std::tuple<value, Weights, Data>{as_terms(converted(sum, of_loss, this->at)), dws, leaf_by_leaf(dxs, as_terms)};
    }();
    const auto leave = [&](const auto& tree, const sharding& s) {
      return leaf_by_leaf(tree, [&](value v) { return edge.leave(v, s); });
    };
    return {edge.leave(std::get<0>(found), terms), leave(std::get<1>(found), by_stage), leave(std::get<2>(found), terms)};
  }
  /// Returns the type of the loss. The loss is traced for its type only, and the program never computes these nodes.
  template <class Data, class Targets>
  constexpr dtype type_of_loss(graph& g, const Data& xs, const Targets& targets) const {
    const value first = this->zeros(g, dtype::s64, {});
    const auto first_of = [&](const auto& tree) {
      return leaf_by_leaf(tree, [&](value v) { return row_of(v, first, this->at); });
    };
    const value example = loss(first_of(xs), first_of(targets));
    if (!example.is_valid() || g.failed()) return dtype::f32;
    if (example.rank() != 0 || !is_floating(example.type()))
      g.fail(this->at, this->op, mistake::region,
             text("the loss of a microbatch is ")
                 << name_of(example.type()) << shape_text(example.shape()) << "; return a float of rank 0: sum or mean it");
    return example.type();
  }

  template <class Weights, class Data, class Targets>
  constexpr std::tuple<value, Weights, Data> run(graph& g, dtype of_loss, const Weights& own, const Data& xs,
                                                 const Targets& targets) const {
    using carried_values = std::tuple<std::vector<value>, Data, Data>;
    const tick_table table(this->schedule);
    const tick_rows rows(table, this->schedule);
    const looked_up tables{rows, rows.works.words(g, this->at), rows.slots.words(g, this->at), rows.leaving.words(g, this->at)};
    const value any = leaves_of(xs)[0];
    const int wide = add_elementwise(g, code_of<cast_op>, {local::axis_index<Axis>(any, this->at).id()}, this->at, dtype::s64);
    const value place = made(g, wide, dtype::s64, {});
    // On a device, dim 0 of the weights (the stages) is 1.
    const Weights mine = leaf_by_leaf(own, [&](value w) { return reshape(w, as_integers(shape_of_row(w)), this->at); });
    const auto memory = [&](value v) {
      extents shape = v.shape();
      shape[0] = table.depth();
      return this->zeros(g, v.type(), shape);
    };
    const auto zeros_of = [&](value v) { return this->zeros(g, v.type(), v.shape()); };
    using sums_of_loop = std::vector<value>;  // the loss and the gradients by the weights
    sums_of_loop none{this->zeros(g, composite_type(of_loss), {})}, sums;
    for (const value& w : leaves_of(mine)) none.push_back(this->zeros(g, composite_type(w.type()), w.shape()));
    Data dxs = leaf_by_leaf(xs, zeros_of), held = leaf_by_leaf(xs, memory);
    for (const auto& segment : table.segments()) {
      const auto trip_of = [&](value trip, carried_values next) {
        std::int64_t number = 0;
        for (const auto& phase : segment.phases) {
          const value first = this->here(trip) * this->here(segment.period());
          const value t = this->here(first) + this->here(segment.begin + number);
          ++number;
          if (!g.failed()) tick(g, of_loss, segment, phase, tables, place, t, mine, xs, targets, next);
        }
        return next;
      };
      const trip_count trips{(segment.end - segment.begin) / segment.period(), this->at};
      if (!segment.goes_backward) {
        held = fori_loop(
            trips,
            [&](value trip, const Data& now) {
              return std::get<2>(trip_of(trip, {sums_of_loop{}, dxs, now}));
            },
            held);
      } else {
        // Each loop starts its sums at 0. So partial sums are reduced once, after the last loop.
        const std::tuple<sums_of_loop, Data, Data> after = fori_loop(
            trips,
            [&](value trip, const sums_of_loop& before, const Data& to, const Data& now) {
              return trip_of(trip, {before, to, now});
            },
            none, dxs, held);
        const sums_of_loop& added = std::get<0>(after);
        for (std::size_t k = 0; k < added.size(); ++k) {
          if (k == sums.size()) sums.push_back(added[k]);
          else sums[k] = this->here(sums[k]) + this->here(added[k]);
        }
        dxs = std::get<1>(after);
        held = std::get<2>(after);
      }
      if (g.failed()) return {none[0], own, dxs};
    }
    std::size_t k = 1;
    const bool divides = this->divides_sums(of_loss, own, xs);
    const Weights dws = leaf_by_leaf(own, [&](value w) {
      return reshape(this->mean_gradient(sums[k++], w.type(), divides), as_integers(w.shape()), this->at);
    });
    return {sums[0], dws, leaf_by_leaf(dxs, [&](value v) { return this->mean_gradient(v, v.type(), divides); })};
  }

  struct looked_up {
    const tick_rows& rows;
    value works, slots, leaving;
  };
  /// Adds one tick of a stage: its pass, then the messages that it and its neighbours send.
  template <class Weights, class Data, class Targets>
  constexpr void tick(graph& g, dtype of_loss, const tick_segment& segment, const tick_segment::phase& phase,
                      const looked_up& tables, value place, value t, const Weights& mine, const Data& xs, const Targets& targets,
                      std::tuple<std::vector<value>, Data, Data>& carried) const {
    const location line = this->at;
    const auto here = [line](auto x) { return operand(x, line); };
    const std::int64_t stages = this->schedule.stages, rounds = this->schedule.rounds;
    std::vector<value>& sums =
        std::get<0>(carried);  // a named reference: Clang rejects a captured structured binding in a constant
    Data& dxs = std::get<1>(carried);
    Data& held = std::get<2>(carried);
    const value row = here(here(t) * here(stages)) + here(place);
    const auto work = tables.rows.works.look_up(tables.works, row, line),
               slots = tables.rows.slots.look_up(tables.slots, row, line);
    const value microbatch = work[1], round = work[2];
    const value part = rounds == 1 ? place : here(here(round) * here(stages)) + here(place);
    const value is_first = equal(here(part), here(0)), is_last = equal(here(part), here(stages * rounds - 1));
    const auto does = [&](stage_tick::kind kind) { return equal(here(work[0]), here(std::int64_t{kind})); };
    const value goes_back = does(stage_tick::backward);
    const auto rows = [&](const auto& tree, value which) {
      return leaf_by_leaf(tree, [&](value v) { return row_of(v, which, line); });
    };
    const Weights w = rounds == 1 ? mine : rows(mine, round);
    // `stop_gradient` keeps the gradient by `x` separate from the gradient by the weights. Earlier stages computed `x`
    // from the weights.
    const auto arrived = [&] {
      const Data x = cond(
          {is_first, line}, [&](value m) { return rows(xs, m); }, [&](value) { return rows(held, slots[0]); }, microbatch);
      return leaf_by_leaf(x, [&](value v) { return stop_gradient(v, line); });
    };
    const auto nothing = [&](value) {
      return leaf_by_leaf(xs, [&](value v) { return this->zeros(g, v.type(), shape_of_row(v)); });
    };
    Data sent = nothing(t);
    if (segment.goes_backward) {
      const auto none = leaf_by_leaf(w, [&](value v) { return this->zeros(g, v.type(), v.shape()); });
      const auto [dx, dw, own] = cond(
          {goes_back, line},
          [&](value m) { return backward(of_loss, w, arrived(), rows(held, slots[1]), rows(targets, m), is_last, part); },
          [&](value which) {
            return std::tuple<Data, Weights, value>{nothing(which), none, this->zeros(g, composite_type(of_loss), {})};
          },
          microbatch);
      if (g.failed()) return;
      sent = dx;
      sums[0] = here(sums[0]) + here(own);
      std::size_t sum = 0;
      for (const value& one : leaves_of(dw)) {
        const value more = widened_term(one, line);
        value& all = sums[++sum];
        if (rounds == 1) all = here(all) + here(more);
        else all = made(add_dynamic_update<add_row_op>(g, all.id(), more.id(), round.id(), line), all);
      }
      // In other ticks and on other stages, zeros are written to the row of the microbatch that leaves next. Its
      // backward pass overwrites them.
      const value leaves = bitwise_and(here(is_first), here(goes_back));
      const value to = tables.rows.leaving.look_up(tables.leaving, t, line)[0];
      dxs = leaf_by_leaf_with(dxs, dx, [&](value all, value x) {
        const value flag = broadcast_in_dim(leaves, as_integers(x.shape()), {}, line);
        return this->with_row(g, all, where(here(flag), here(x), here(this->zeros(g, x.type(), x.shape()))), to);
      });
    }
    if (segment.goes_forward)
      sent = cond(
          {does(stage_tick::forward), line}, [&](value p) { return this->one_stage(w, arrived(), p); },
          [&](value) { return sent; }, part);
    if (!g.failed()) held = exchanged(g, phase, held, sent, slots[2], slots[3]);
  }

  template <class Tree, class F>
  static constexpr Tree leaf_by_leaf_with(const Tree& tree, const Tree& other, F f) {
    return transform_leaves(f, tree, other);
  }
  static constexpr extents shape_of_row(value v) {
    extents shape;
    for (int d = 1; d < v.rank(); ++d) shape.push_back(v.shape()[d]);
    return shape;
  }
  /// Returns the memory with the messages of the neighbours in their slots.
  template <class Data>
  constexpr Data exchanged(graph& g, const tick_segment::phase& phase, const Data& all, const Data& sent, value up,
                           value down) const {
    const bool goes_up = tick_table<Schedule>::any(phase.up), goes_down = tick_table<Schedule>::any(phase.down);
    const auto with = [&](const Data& memory, bool takes_up, bool takes_down, value row) {
      return leaf_by_leaf_with(
          memory, sent, [&](value v, value own) { return this->with_row(g, v, moved(own, phase, takes_up, takes_down), row); });
    };
    if (phase.is_one) return goes_up || goes_down ? with(all, true, true, up) : all;
    const Data first = goes_up ? with(all, true, false, up) : all;
    return goes_down ? with(first, false, true, down) : first;
  }
  constexpr value moved(value x, const tick_segment::phase& phase, bool up, bool down) const {
    const std::int64_t stages = this->schedule.stages;
    std::vector<local::device_pair> pairs;
    for (std::int64_t s = 0; s < stages; ++s) {
      const auto k = static_cast<std::size_t>(s);
      if (up && phase.up[k] != 0) pairs.push_back({s, (s + 1) % stages});
      if (down && phase.down[k] != 0) pairs.push_back({s, (s + stages - 1) % stages});
    }
    return local::permute<Axis>(x, span<const local::device_pair>(pairs.data(), pairs.size()), this->at);
  }
  /// Returns the gradients by x and by the weights, and the loss, of a stage's backward pass for a microbatch. The last
  /// stage starts from the loss. Other stages start from `dy`, the gradient that the next stage sent.
  template <class Weights, class Data, class Targets>
  constexpr std::tuple<Data, Weights, value> backward(dtype of_loss, const Weights& weights, const Data& x, const Data& dy,
                                                      const Targets& target, value is_last, value part) const {
    // Makes new values, so that `grad` stops at them and does not visit earlier nodes.
    const Weights w = leaf_by_leaf(weights, [&](value v) { return stop_gradient(v, this->at); });
    const Data y = this->one_stage(w, x, part);
    graph& g = *leaves_of(x)[0].graph();
    const dtype type = composite_type(of_loss);
    const bool divides = this->divides_sums(of_loss, w, x);
    const auto begin = [&](value) {
      const value whole = this->widened(loss(y, target)), own = this->part_of_mean(whole);
      return std::tuple<value, Data>{own, grad(local::to_partial<Axis>(divides ? whole : own, this->at), y)};
    };
    const auto go_on = [&](value) { return std::tuple<value, Data>{this->zeros(g, type, {}), dy}; };
    const auto [own, from] = cond({is_last, this->at}, begin, go_on, part);
    value product = this->zeros(g, type, {});
    const auto to = leaves_of(from);
    std::size_t k = 0;
    for (const value& v : leaves_of(y)) {
      const value by_v = stop_gradient(to[k++], this->at);
      if (!is_floating(v.type())) continue;  // no gradient
      const value term = sum(this->here(v) * this->here(by_v), {}, this->at);
      product = this->here(product) + this->here(converted(term, type, this->at));
    }
    const auto [dw, dx] = grad(local::to_partial<Axis>(product, this->at), std::tuple{w, x});
    return {dx, dw, own};
  }
};

}  // namespace detail

/// Returns a function that computes the mean loss of the microbatches and its gradients by a schedule. Each device
/// along `Axis` is a stage.
///
/// `schedule` is one_forward_one_backward, interleaved, gpipe, circular, or your own struct with the same members. The
/// arguments and results are the same as for pipeline_step with eager_one_forward_one_backward.
///
/// The stages run in a manual region over `Axis`. The planner decides about the other axes. Loops run over the ticks of
/// the timetable. In each tick a stage runs a forward pass or a backward pass, or waits. A conditional selects the
/// pass, so a stage computes nothing that is unused. Stages can read values of the program only from weights, xs and
/// targets. The backward pass recomputes a stage from its x. A stage keeps a received microbatch or gradient until its
/// last use: S microbatches and their gradients with one_forward_one_backward, M microbatches and one gradient with
/// gpipe.
///
/// bf16 and f16: losses and gradients by the weights are added up as float, divided by the number of microbatches and
/// rounded once (ops/composite.hpp). The float sums take twice the memory of the gradients, and the all_reduce over
/// other axes sends floats. The gradient of a microbatch has the types of the stage, and is the gradient of its whole
/// loss. So choose a loss scale as for one microbatch.
///
/// **Shapes.** Weights [stages, ...], or [stages, rounds, ...] if the schedule has rounds (stage_weights); xs and
/// targets [microbatches, ...].
/// **Communication.** In each tick one collective_permute of a microbatch: activations forward and gradients backward.
/// That makes 2 (M + S - 1) messages for one_forward_one_backward and gpipe, and 2 (RM + S - 1) for interleaved. With
/// an odd number of stages, interleaved sends more, because the last and the first stage send to each other in the same
/// tick. In addition, once: the loss, the gradients by xs (from the first stage), and the gradients by the weights over
/// the axes that split a microbatch.
/// **Errors.** At compile time: the errors of the other pipeline_step; a number of stages that differs from the devices
/// along `Axis`; more than 32768 forward passes.
/// **Threads.** A run requires a thread or a process for each device.
/// **Example.**
///
///     auto [loss, dw, dx] = pipeline_step<"stage">(layer, squares, one_forward_one_backward{4, 32})(w, xs, targets);
///
/// **Source.** Narayanan et al., PipeDream, 2019; Megatron-LM, 2021, 2.2; GSPMD 3.4 (manual subgroups).
template <dim_spec Axis, class Stage, class Loss, class Schedule>
constexpr auto pipeline_step(Stage stage, Loss loss, Schedule schedule, location at = location::current()) {
  return detail::scheduled_step<Axis, Stage, Loss, Schedule>{{std::move(stage), schedule, at, "pipeline_step"}, std::move(loss)};
}

}  // namespace gspmd
