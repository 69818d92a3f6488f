// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "gspmd/nn/optimizer/norms.hpp"
#include "gspmd/nn/optimizer/schedules.hpp"
#include "gspmd/ops/dims.hpp"

namespace gspmd::detail {

/// Returns the shape without a dim.
constexpr extents shape_without(const extents& shape, int dim) {
  extents left;
  for (int d = 0; d < shape.count; ++d)
    if (d != dim) left.push_back(shape[d]);
  return left;
}
/// Returns zeros in the shape of a tensor without one of its dims. The other dims keep their annotated sharding.
constexpr value zeros_without(value like, int dim, location at) {
  auto& g = *like.graph();
  const extents shape = shape_without(like.shape(), dim);
  const value zeros = made(g, add_constant(g, like.type(), shape, 0, 0, at), like.type(), shape);
  const node parameter = like.node();
  if (!parameter.annotated) return zeros;
  annotation left = parameter.annotation;
  left.layout.splits.clear();
  left.layout.partial = 0;
  for (auto use : parameter.annotation.layout.splits) {
    if (use.dim == dim) continue;
    if (use.dim > dim) --use.dim;
    left.layout.splits.push_back(use);
  }
  const dim_mask before = dim_bit(dim) - 1;
  left.open = (left.open & before) | ((left.open >> 1) & ~before);
  return made(add_reshard(g, zeros.id(), left, at), zeros);
}

}  // namespace gspmd::detail

namespace gspmd::optimizer {

/// The second moments of Adafactor. If a tensor has two dims or more, `rows` and `cols` are the means over the last dim
/// and over the last but one. If it has fewer dims, `rows` is the second moments themselves, and `cols` is a single
/// unused 0.
template <class Params, class Count = value>
struct adafactor_state {
  Params rows, cols;
  Count step;
};

/// Adafactor: keeps second moments of a matrix by its rows and columns, and no first moment. See optimizer.hpp.
///
/// The step is scaled by the root mean square of the parameter, and its own root mean square is at most `clip`. At
/// update t, which starts at 1, the rate is min(rate, 1 / sqrt(t)). The moments decay by 1 - t^-decay. If a tensor has
/// more than two dims, the last two are the matrix. Means are over whole tensors, not over shards.
///
/// **Source.** Shazeer and Stern 2018, Algorithm 4; Algorithm 5 for tensors of fewer than two dims.
struct adafactor {
  schedule rate = 1e-2;
  double decay = 0.8;
  double clip = 1;
  double epsilon = 1e-30;                       // added to squares of gradients
  double least_scale = 1e-3;                    // the lower bound of a parameter's root mean square in the scale
  static constexpr int dims_reduced_apart = 2;  // rows and columns: `reformatted` must not combine them

  template <class Params>
  constexpr adafactor_state<Params> init(const Params& params, location at = location::current()) const {
    adafactor_state<Params> state{params, params, gspmd::detail::no_updates(params, at)};
    gspmd::detail::for_each_leaf(state.rows, [at](value& v) {
      if (v.is_valid()) v = v.rank() < 2 ? gspmd::detail::zeros_beside(v, at) : gspmd::detail::zeros_without(v, v.rank() - 1, at);
    });
    gspmd::detail::for_each_leaf(state.cols, [at](value& v) {
      if (!v.is_valid()) return;
      if (v.rank() >= 2) v = gspmd::detail::zeros_without(v, v.rank() - 2, at);
      else v = gspmd::detail::made(*v.graph(), gspmd::detail::add_constant(*v.graph(), v.type(), {}, 0, 0, at), v.type(), {});
    });
    return state;
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    updated<Params, State> next{params, state};
    if constexpr (gspmd::detail::is_update<Params, Grads, State, adafactor_state<Params>>()) {
      gspmd::detail::parameter_update all(gspmd::detail::graph_in(params), "adafactor", at);
      const quantity count = all.count(next.state.step);
      if (count.is_number()) return next;
      const quantity t = count + 1.0, lr = min(rsqrt(t), all.rate(rate.of(count), given_rate));
      const quantity fresh = pow(t, -decay), kept = 1.0 - fresh;
      const auto each = [&](quantity p, quantity d, std::array<quantity, 2> s) -> std::array<quantity, 3> {
        const auto shape = p.tensor().shape();
        const int last = p.tensor().rank() - 1;
        const dtype type = p.tensor().type();
        const auto mean_over = [at](const quantity& x, int dim) { return quantity(mean(x.tensor(), dim, at), at); };
        const auto along = [at](const quantity& x, int dim) { return quantity(expand_dims(x.tensor(), dim, at), at); };
        const quantity squares = d * d + epsilon;
        quantity step = d, rows = s[0], cols = s[1];
        if (last < 1) {
          if (!all.is_state(rows, shape)) return {p, rows, cols};
          rows = kept.as(type) * rows + fresh.as(type) * squares;
          step = d * rsqrt(rows);
        } else {
          if (!all.is_state(rows, gspmd::detail::shape_without(shape, last)) ||
              !all.is_state(cols, gspmd::detail::shape_without(shape, last - 1)))
            return {p, rows, cols};
          rows = kept.as(type) * rows + fresh.as(type) * mean_over(squares, last);
          cols = kept.as(type) * cols + fresh.as(type) * mean_over(squares, last - 1);
          const quantity relative = rows / along(mean_over(rows, last - 1), last - 1);
          step = d * along(rsqrt(relative), last) * along(rsqrt(cols), last - 1);
        }
        const quantity clipped = max(gspmd::detail::rms_of(step) * (1 / clip), 1.0);
        const quantity scale = max(gspmd::detail::rms_of(p), least_scale);
        const quantity factor = lr * (scale.as(dtype::f64) / clipped.as(dtype::f64));
        return {p - factor.as(type) * step, rows, cols};
      };
      all.each(each, next.params, grads, next.state.rows, next.state.cols);
    }
    return next;
  }
};

}  // namespace gspmd::optimizer
