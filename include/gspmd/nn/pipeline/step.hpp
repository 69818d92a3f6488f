// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "gspmd/detail/ops/elementwise.hpp"
#include "gspmd/nn/pipeline/vectorized.hpp"
#include "gspmd/transform/grad.hpp"

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
      return g->failed() ? refused : run(*g, weights, xs, targets);
    }
  }

 private:
  template <class Tree>
  static constexpr value leaf_of(const Tree& tree) {
    const auto leaves = leaves_of(tree);
    return leaves.empty() ? value{} : leaves[0];
  }
  /// Returns the loss, and the gradients by the weights and x, of a stage's backward pass for a microbatch. `dy` is the
  /// gradient from the next stage. The last stage starts from the loss. If `is_there` is false, all results are 0.
  template <class Weights, class Data, class Targets>
  constexpr auto backward(const Weights& w, const Data& x, const Data& dy, const Targets& target, value is_last, value is_there,
                          value part) const {
    const Data y = this->one_stage(w, x, part);
    const value one_loss = loss(y, target), whole = this->widened(one_loss), own = this->part_of_mean(whole);
    const value differentiated = this->divides_sums(one_loss.type(), w, x) ? whole : own;
    const auto everywhere = [&](value flag, value like) {
      return this->here(broadcast_in_dim(flag, as_integers(like.shape()), {}, this->at));
    };
    const Data from = transform_leaves(
        [&](value by_loss, value by_next) {
          const value begun = where(everywhere(is_last, by_loss), this->here(by_loss), this->here(by_next));
          return stop_gradient(where(everywhere(is_there, begun), this->here(begun), this->here(zeros_like(begun, this->at))),
                               this->at);
        },
        grad(differentiated, y), dy);
    value product = zeros_like(own, this->at);
    const auto to = leaves_of(from);
    std::size_t k = 0;
    for (const value& v : leaves_of(y)) {
      const value& by_v = to[k++];
      if (!is_floating(v.type())) continue;  // no gradient
      const value term = sum(this->here(v) * this->here(by_v), {}, this->at);
      product = this->here(product) + this->here(converted(term, own.type(), this->at));
    }
    const auto [dw, dx] = grad(product, std::tuple{w, x});
    // A factor of 0 or 1 instead of a select, so that a sum over devices along other axes can wait until the loop ends.
    const value counts = bitwise_and(this->here(is_last), this->here(is_there));
    const int factor = add_elementwise(*own.graph(), code_of<cast_op>, {counts.id()}, this->at, own.type());
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
    const Weights sums = transform_leaves([&](value w) { return this->zeros(g, composite_type(w.type()), w.shape()); }, weights);
    const value is_first = equal(here(place), here(0)), is_last = equal(here(place), here(stages - 1));
    const auto body = [&](value tick, const Data& arrived, const Data& returned, const Data& stashed, const Weights& dws,
                          const Data& dxs, value losses) {
      const Data in = this->entering(xs, tick, is_first, arrived);
      const value row = fmod(here(tick), here(kept));
      const Data held = transform_leaves([&](value all, value x) { return this->with_row(g, all, x, row); }, stashed, in);
      const Data out = this->stages_of(weights, in, place);
      // Stage s runs the backward pass of the microbatch whose forward pass it ran 2 (stages - 1 - s) ticks ago.
      const value ago = here(last) - here(here(place) * here(2));
      const value back = here(here(tick) - here(last)) + here(place);
      const value is_there = bitwise_and(here(here(back) >= here(0)), here(here(back) < here(microbatches)));
      const value of_back = fmod(here(here(here(tick) + here(2 * kept)) - here(ago)), here(kept));
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
          transform_leaves([&](value v) { return this->placed(shift(v, -1, along(0), line)); }, out),
          transform_leaves([&](value v) { return this->placed(shift(v, 1, along(0), line)); }, made_dx),
          held,
          transform_leaves([&](value all, value v) { return here(all) + here(widened_term(v, line)); }, dws, dw),
          transform_leaves([&](value all, value v) { return this->with_row(g, all, v, here(tick) - here(last)); }, dxs, made_dx),
          value(here(losses) + here(own))};
    };
    // Traced for its type only. The program never computes these nodes.
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
    const bool divides = this->divides_sums(example.type(), weights, xs);
    const auto finished = [&](value sum, dtype to) { return this->mean_gradient(sum, to, divides); };
    return {converted(sum(losses, {}, line), example.type(), line),
            transform_leaves([&](value all, value w) { return finished(all, w.type()); }, dws, weights),
            transform_leaves([&](value v) { return this->of_stage(finished(v, v.type()), place, 0); }, dxs)};
  }
};

}  // namespace detail

/// Returns a function that computes the mean loss of the microbatches and its gradients by eager 1F1B. The pipeline
/// runs forward and backward passes in the same tick.
///
/// The function takes (weights, xs, targets) and returns a tuple: the loss, the gradients by the weights, the gradients
/// by xs. `stage` is as in `pipeline`. loss(y, target) returns the loss for a microbatch, a float of rank 0.
///
/// There are microbatches + 2 (stages - 1) ticks. In each tick, every stage runs the forward pass for one microbatch
/// and the backward pass for another. The backward pass recomputes the stage from its x. So a stage keeps 2 stages - 1
/// microbatches, however many there are. grad of `pipeline` keeps all microbatches. A stage is idle for 2 (stages - 1)
/// ticks of both passes, compared with stages - 1 ticks for `pipeline`.
///
/// All stages compute the loss of their results, and only the loss of the last stage counts. So the loss must be finite
/// on the result of each stage. The stages and their gradients must be finite on any microbatch (see `pipeline`).
///
/// bf16 and f16: losses and gradients by the weights are added up as float, divided by the number of microbatches and
/// rounded once (ops/composite.hpp). The float sums take twice the memory of the gradients, and the all_reduce over
/// other axes sends floats. The gradient of a microbatch has the types of the stage, and is the gradient of its whole
/// loss. So choose a loss scale as for one microbatch.
///
/// **Shapes.** Weights [stages, ...], xs and targets [microbatches, ...]; values or groups of values.
/// **Communication.** In each tick one collective_permute of a microbatch to the next stage and one to the previous
/// stage. In addition, once: the loss, the gradients by the weights along the axes that split a microbatch, and the
/// gradients by xs (from the first stage).
/// **Errors.** At compile time: the errors of `pipeline`; targets with another number of microbatches; a loss that is
/// not a float of rank 0.
/// **Example.**
///
///     auto [loss, dw, dx] = pipeline_step<"stage">(layer, [](auto y, auto t) { return mean((y - t) * (y - t)); },
///                                                  eager_one_forward_one_backward{4, 32})(w, xs, targets);
///
/// **Source.** GSPMD 3.3 (stages that are computed together); Zhuang et al., 2022 (eager 1F1B).
template <dim_spec Axis, class Stage, class Loss>
constexpr auto pipeline_step(Stage stage, Loss loss, eager_one_forward_one_backward schedule, location at = location::current()) {
  return detail::eager_pipeline<Axis, Stage, Loss>{{std::move(stage), schedule, at, "pipeline_step"}, std::move(loss)};
}

}  // namespace gspmd
