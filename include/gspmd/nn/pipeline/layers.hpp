// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/support/callable.hpp"
#include "gspmd/nn/pipeline/vectorized.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/loops.hpp"

/// Stages that consist of several layers. The number of stages does not have to divide the number of layers.
namespace gspmd {
namespace detail {

template <class Layer>
struct several_layers {
  Layer layer;
  std::int64_t layers;
  location at;

  template <class Weights, class Data>
  constexpr Data operator()(const Weights& weights, const Data& x, value part) const {
    graph* const g = graph_of(weights, x);
    if (g == nullptr) return x;
    std::int64_t each = -1;
    for (const value& w : leaves_of(weights)) {
      const std::int64_t own = w.rank() == 0 ? 0 : w.shape()[0];
      if (own < 1 || (each >= 0 && own != each)) {
        g->fail(at, "stage_of", mistake::extent,
                text("a stage has a weight ")
                    << shape_text(w.shape())
                    << "; dim 0 counts the layers of a stage, the same number for all weights (stage_weights)");
        return x;
      }
      each = own;
    }
    const operand first = {operand(part, at) * operand(each, at), at};
    return fori_loop(
        {each, at},
        [&](value k, const Data& h) {
          const Weights own = transform_leaves([&](value w) { return row_of(w, k, at); }, weights);
          const Data next = layer(own, h);
          if (layers < 0) return next;
          const value is_there = operand(first + operand(k, at), at) < operand(layers, at);
          return transform_leaves(
              [&](value y, value was) {
                return where({broadcast_in_dim(is_there, as_integers(y.shape()), {}, at), at}, {y, at}, {was, at});
              },
              next, h);
        },
        x);
  }
};

}  // namespace detail

/// Returns a stage for `pipeline` that applies `layer(weights, x) -> x` once for each row of its weights, in order.
///
/// If `layers` is passed, it is the number of layers in all stages. Layers after the last one are computed, but their
/// result is discarded and their weights get gradients of 0. So the stages do not have to divide the number of layers.
///
/// **Shapes.** Weights of a stage [layers of the stage, ...], x and the result [...].
/// **Communication.** None.
/// **Errors.** A weight without a dim of layers, or weights with different numbers of layers.
/// **Example.** Six layers on four stages: two layers on each of the first three stages.
///
///     auto y = pipeline<"stage">(stage_of(layer, 6), gpipe{4, 8})(stage_weights(w, gpipe{4, 8}), xs);
template <class Layer>
constexpr auto stage_of(Layer layer, std::int64_t layers = -1, location at = location::current()) {
  return detail::several_layers<Layer>{std::move(layer), layers, at};
}

/// Returns the weights of all layers in the shape that the stages of `schedule` take.
///
/// If stages * rounds does not divide the number of layers, copies of the first layer's weights fill the last rows.
/// `stage_of(layer, layers)` discards the results for the filled rows.
///
/// **Shapes.** [layers, ...] -> [stages, k, ...], or [stages, rounds, k, ...] if the schedule has rounds; k is the
/// number of layers at a time.
/// **Communication.** None if the schedule has no rounds and the stages divide the layers: a split of the layers is
/// then a split of the stages. With rounds, the layers of a device are not adjacent in the input. If you keep the
/// weights from step to step, keep this result.
/// **Errors.** A schedule that does not fit; a weight without layers.
/// **Example.** stage_weights(w, gpipe{4, 8}) of six layers is [4, 2, ...]. Rows 6 and 7 of the eight are copies of
/// layer 0.
template <class Tree, class Schedule>
constexpr Tree stage_weights(const Tree& weights, const Schedule& schedule, location at = location::current()) {
  return transform_leaves(
      [&](value w) -> value {
        if (!w.is_valid()) return w;
        if (const detail::text what = schedule.misfit(); !what.empty() || w.rank() == 0 || w.shape()[0] == 0)
          return detail::made(
              w.graph()->fail(at, "stage_weights", detail::mistake::extent,
                              what.empty() ? detail::text("there are no layers in ") << detail::shape_text(w.shape()) : what),
              w);
        const std::int64_t layers = w.shape()[0], parts = schedule.stages * schedule.rounds, each = (layers + parts - 1) / parts;
        detail::extents rows = w.shape(), first(w.rank(), 0), shape, order;
        if (const std::int64_t missing = parts * each - layers; missing > 0) {
          detail::extents last = w.shape();
          last[0] = 1;
          const value one = slice(w, detail::as_integers(first), detail::as_integers(last), {}, at);
          rows[0] = missing;
          w = concatenate({w, broadcast_to(one, detail::as_integers(rows), at)}, 0, at);
        }
        for (const std::int64_t e : {std::int64_t{schedule.rounds}, std::int64_t{schedule.stages}, each}) shape.push_back(e);
        for (int d = 1; d < rows.count; ++d) shape.push_back(rows[d]);
        for (int d = 0; d < shape.count; ++d) order.push_back(d < 2 ? 1 - d : d);
        w = transpose(reshape(w, detail::as_integers(shape), at), detail::as_integers(order), at);
        if (schedule.rounds > 1) return w;
        detail::extents flat;
        for (int d = 0; d < w.rank(); ++d)
          if (d != 1) flat.push_back(w.shape()[d]);
        return reshape(w, detail::as_integers(flat), at);
      },
      weights);
}

}  // namespace gspmd
