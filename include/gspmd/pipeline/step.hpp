// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/grad.hpp"
#include "gspmd/pipeline/vectorized.hpp"

namespace gspmd {
namespace detail {

template <dim_spec Axis, class Stage, class Loss>
struct eager_pipeline : stages_on<Axis, Stage, eager_one_forward_one_backward> {
  using base = stages_on<Axis, Stage, eager_one_forward_one_backward>;
  Loss loss;

  template <class Weights, class Data, class Targets>
  constexpr std::tuple<value, Weights, Data> operator()(const Weights& weights, const Data& xs, const Targets& targets) const {
    using call = stage_call<Stage, Weights, Data>;
    using of_loss = call_with<const Loss&, const Data&, const Targets&>;
    const std::tuple<value, Weights, Data> refused{leaf_of(xs), weights, xs};
    if constexpr (!base::template is_stage<Weights, Data>()) {
      return refused;
    } else if constexpr (!call::compiles || (!of_loss::compiles && !of_loss::refuses)) {
      return refused;  // a mistake in a function, which the compiler has reported
    } else if constexpr (of_loss::refuses || !is_values<Targets>) {
      static_assert(
          written_so<Loss>,
          "gspmd: pipeline_step: the loss is called as loss(y, target), with what the last stage returns and the target of "
          "one microbatch, and returns one value of rank 0");
      return refused;
    } else {
      graph* const g = graph_of(weights, xs, targets);
      if (g == nullptr || !this->fits_step(*g, weights, xs)) return refused;
      for (const value& t : leaves_of(targets)) this->check_dim(t, 0, this->schedule.microbatches, "the target", "microbatches");
      return g->failed() ? refused : run(*g, weights, xs, targets);
    }
  }

 private:
  template <class Tree>
  static constexpr value leaf_of(const Tree& tree) {
    const auto leaves = leaves_of(tree);
    return leaves.empty() ? value{} : leaves[0];
  }
  /// The backward pass of a stage with one microbatch: its loss, and the gradients by weights and x. `dy` is the next stage's; the last stage
  /// begins with the loss. Where there is no microbatch all of it is 0.
  template <class Weights, class Data, class Targets>
  constexpr auto backward(const Weights& w, const Data& x, const Data& dy, const Targets& target, value is_last, value is_there,
                          value part) const {
    const Data y = this->one_stage(w, x, part);
    const value own = this->part_of_mean(loss(y, target));
    const auto everywhere = [&](value flag, value like) {
      return this->here(broadcast_in_dim(flag, as_integers(like.shape()), {}, this->at));
    };
    const Data from = transform_leaves(
        [&](value by_loss, value by_next) {
          const value begun = select(everywhere(is_last, by_loss), this->here(by_loss), this->here(by_next));
          return stop_gradient(select(everywhere(is_there, begun), this->here(begun), this->here(zeros_like(begun, this->at))),
                               this->at);
        },
        grad(own, y), dy);
    value product = zeros_like(own, this->at);
    const auto to = leaves_of(from);
    std::size_t k = 0;
    for (const value& v : leaves_of(y)) {
      const value& by_v = to[k++];
      if (!is_floating(v.type())) continue;  // it has no gradient
      const value term = sum(this->here(v) * this->here(by_v), {}, this->at);
      product = this->here(product) + this->here(converted(term, own.type(), this->at));
    }
    const auto [dw, dx] = grad(product, std::tuple{w, x});
    // A number in the place of a choice: a sum of what devices along other axes have may wait for the end of the loop.
    const value counts = logical_and(this->here(is_last), this->here(is_there));
    const int factor = add_elementwise(*own.graph(), code_of<convert_op>, {counts.id()}, this->at, own.type());
    return std::tuple{value(this->here(own) * this->here(made(*own.graph(), factor, own.type(), {}))), dw, dx};
  }

  template <class Weights, class Data, class Targets>
  constexpr std::tuple<value, Weights, Data> run(graph& g, const Weights& weights, const Data& xs, const Targets& targets) const {
    const location line = this->at;
    const auto here = [line](auto x) { return operand(x, line); };
    const std::int64_t stages = this->schedule.stages, microbatches = this->schedule.microbatches;
    const std::int64_t kept = 2 * stages - 1, last = 2 * (stages - 1);
    const value place = this->places(xs);
    const Data begin = this->copies(g, xs);
    const Data nothing = transform_leaves([&](value v) { return this->placed(zeros_like(v, line)); }, begin);
    const Data stash = transform_leaves([&](value v) { return this->placed(for_each_stage(v, kept, line), 1); }, begin);
    const Weights sums = transform_leaves([&](value w) { return zeros_like(w, line); }, weights);
    const value is_first = equal(here(place), here(0)), is_last = equal(here(place), here(stages - 1));
    const auto body = [&](value tick, const Data& arrived, const Data& returned, const Data& stashed, const Weights& dws,
                          const Data& dxs, value losses) {
      const Data in = this->entering(xs, tick, is_first, arrived);
      const value row = remainder(here(tick), here(kept));
      const Data held = transform_leaves([&](value all, value x) { return this->with_row(g, all, x, row); }, stashed, in);
      const Data out = this->stages_of(weights, in, place);
      // Stage s goes backward with the microbatch that it went forward with 2 (stages - 1 - s) ticks ago.
      const value ago = here(last) - here(here(place) * here(2));
      const value back = here(here(tick) - here(last)) + here(place);
      const value is_there = logical_and(here(here(back) >= here(0)), here(here(back) < here(microbatches)));
      const value of_back = remainder(here(here(here(tick) + here(2 * kept)) - here(ago)), here(kept));
      const Data x =
          vmap<1, 0>([&](const Data& all, value r) { return transform_leaves([&](value v) { return row_of(v, r, line); }, all); },
                     out_dims<>{}, line)(held, of_back);
      const value leaving = here(tick) - here(stages - 1);
      const Targets target = transform_leaves([&](value v) { return row_of(v, leaving, line); }, targets);
      const auto one = [this](const Weights& w, const Data& of, const Data& dy, const Targets& t, value ends, value there,
                              value part) { return backward(w, of, dy, t, ends, there, part); };
      const auto [own, dw, dx] =
          vmap<0, 0, 0, not_mapped, 0, 0, 0>(one, out_dims<>{}, line)(weights, x, returned, target, is_last, is_there, place);
      const auto place_all = [&](const auto& tree) { return transform_leaves([&](value v) { return this->placed(v); }, tree); };
      const Data made_dx = place_all(dx);
      return std::tuple{
          transform_leaves([&](value v) { return this->placed(shift(v, 0, -1, line)); }, out),
          transform_leaves([&](value v) { return this->placed(shift(v, 0, 1, line)); }, made_dx),
          held,
          transform_leaves([&](value all, value v) { return here(all) + here(v); }, dws, dw),
          transform_leaves([&](value all, value v) { return this->with_row(g, all, v, here(tick) - here(last)); }, dxs, made_dx),
          value(here(losses) + here(own))};
    };
    // Asked for its type alone; nothing of it is computed.
    const value first = this->zeros(g, dtype::s64, {});
    const auto first_of = [&](const auto& tree) {
      return transform_leaves([&](value v) { return row_of(v, first, line); }, tree);
    };
    const value example = loss(first_of(xs), first_of(targets));
    if (!example.is_valid() || g.failed()) return {leaf_of(xs), weights, xs};
    if (example.rank() != 0 || !is_floating(example.type())) {
      g.fail(line, this->op, mistake::region,
             text("the loss of a microbatch is ")
                 << name_of(example.type()) << shape_text(example.shape()) << "; return a float of rank 0: sum or mean it");
      return {leaf_of(xs), weights, xs};
    }
    const dtype type = composite_type(example.type());
    const extents by_stage = place.shape();
    const value none = made(g, add_constant(g, type, by_stage, 0, 0, line), type, by_stage);
    const auto [arrived, returned, held, dws, dxs, losses] =
        fori_loop({microbatches + last, line}, body, begin, nothing, stash, sums, this->empty_rows(g, xs), none);
    return {converted(sum(losses, {}, line), example.type(), line), dws,
            transform_leaves([&](value v) { return this->of_stage(v, place, 0); }, dxs)};
  }
};

}  // namespace detail

/// The mean of the microbatches' losses and its gradients, by a pipeline that goes backward with a microbatch while others go forward
/// (1F1B): a function of (weights, xs, targets), of weights [stages, ...], xs and targets [microbatches, ...], or groups of them, to a tuple
/// of the loss, the gradients by the weights and those by xs. `stage` as in `pipeline`; loss(y, target) is that of one microbatch, of rank 0.
///
///     auto [loss, dw, dx] = pipeline_step<"stage">(layer, [](auto y, auto t) { return mean((y - t) * (y - t)); },
///                                                  eager_one_forward_one_backward{4, 32})(w, xs, targets);
///
/// In each of microbatches + 2 (stages - 1) ticks every stage goes forward with one microbatch and backward with another one, which it
/// computes again from its x. So a stage keeps 2 stages - 1 microbatches, however many there are, where grad of `pipeline` keeps all; and it is
/// idle 2 (stages - 1) ticks of both passes, where that is stages - 1. All stages compute the loss of what they make, and that of the last
/// one counts: it must be a number on each, as the stages and their gradients must on any microbatch (`pipeline`).
///
/// Losses of bf16 and f16 are added up as float and rounded once (ops/composite.hpp). Gradients by the weights are added up in the type of the
/// weights. For float sums pass float weights and convert them in the stage.
///
/// Communication: in each tick a collective_permute to the next stage and one to the stage before, of a microbatch. Besides, once: the
/// loss, the gradients by weights along the axes that split a microbatch, and those by xs, which the first stage has.
/// Errors, at compile time: those of `pipeline`; targets of another number, a loss that is no float of rank 0.
/// Source: GSPMD 3.3 (stages that are computed together); Zhuang et al., 2022 (eager 1F1B).
template <dim_spec Axis, class Stage, class Loss>
constexpr auto pipeline_step(Stage stage, Loss loss, eager_one_forward_one_backward schedule, location at = location::current()) {
  return detail::eager_pipeline<Axis, Stage, Loss>{{std::move(stage), schedule, at, "pipeline_step"}, std::move(loss)};
}

}  // namespace gspmd
