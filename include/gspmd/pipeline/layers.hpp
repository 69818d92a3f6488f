// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/support/callable.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/pipeline/vectorized.hpp"

/// Stages of several layers, also where the stages do not divide their number.
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
                    << shape_text(w.shape()) << "; dim 0 counts the layers of a stage, as many for all weights (stage_weights)");
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
                return select({broadcast_in_dim(is_there, as_integers(y.shape()), {}, at), at}, {y, at}, {was, at});
              },
              next, h);
        },
        x);
  }
};

}  // namespace detail

/// A stage of as many layers as its weights have rows, one after the other: what `pipeline` calls, of layer(weights, x) -> x. With `layers`,
/// how many there are in all stages, those after the last one are the identity (they are computed, and their result is not taken; their
/// weights get gradients of 0): for numbers that the stages do not divide.
///
///     auto y = pipeline<"stage">(stage_of(layer, 6), gpipe{4, 8})(stage_weights(w, gpipe{4, 8}), xs);   // two layers on three of four
///
/// Sends nothing itself. Errors: weights without a dim of layers, or with several numbers of them.
template <class Layer>
constexpr auto stage_of(Layer layer, std::int64_t layers = -1, location at = location::current()) {
  return detail::several_layers<Layer>{std::move(layer), layers, at};
}

/// The weights of `layers` layers, [layers, ...], as a schedule's stages take them: [stages, k, ...], or [stages, rounds, k, ...] where
/// there are rounds, k layers at a time. Those that are missing in the last ones are the first layer's once more, to be left out by stage_of.
/// Without rounds, and where the stages divide the layers, a split of the layers is one of the stages, and nothing is sent. With rounds, a
/// device's layers are no neighbours: where weights are kept from step to step keep them as this returns them.
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
