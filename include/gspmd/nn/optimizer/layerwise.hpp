// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "gspmd/nn/optimizer/adam.hpp"
#include "gspmd/nn/optimizer/norms.hpp"
#include "gspmd/nn/optimizer/sgd.hpp"

namespace gspmd::detail {

/// Returns trust * |p| / |step|, the factor that scales a layer's step to its weights. Returns 1 if one of the norms is
/// 0, so that weights can leave 0.
constexpr quantity trust_ratio(const quantity& p, const quantity& weights, const quantity& step, double trust) {
  const quantity ratio = select(step > 0.0, trust * weights / step, 1.0);
  return select(weights > 0.0, ratio, 1.0).as(p.tensor().type());
}

}  // namespace gspmd::detail

namespace gspmd::optimizer {

/// LARS: momentum with the rate rate * trust * |p| / (|gradient| + weight_decay * |p|) for each tensor. Norms are over
/// whole tensors, not over shards. See optimizer.hpp.
///
/// **Source.** You, Gitman and Ginsburg 2017, Algorithm 1.
struct lars {
  schedule rate = 1e-3;
  double decay = 0.9;
  double weight_decay = 5e-4;
  double trust = 1e-3;
  decay_mask decays = nullptr;

  template <class Params>
  constexpr momentum_state<Params> init(const Params& params, location at = location::current()) const {
    return momentum{}.init(params, at);
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    updated<Params, State> next{params, state};
    if constexpr (gspmd::detail::is_update<Params, Grads, State, momentum_state<Params>>()) {
      gspmd::detail::parameter_update all(gspmd::detail::graph_in(params), "lars", at);
      const quantity lr = all.rate(rate.of(all.count(next.state.step)), given_rate);
      const auto each = [&](quantity p, quantity d, std::array<quantity, 1> s) -> std::array<quantity, 2> {
        if (!all.is_state(s[0], p.tensor().shape())) return {p, s[0]};
        const dtype type = p.tensor().type();
        const quantity weights = gspmd::detail::norm_of(p), gradient = gspmd::detail::norm_of(d);
        const double c = all.decay(weight_decay, decays);
        const quantity step = select(gradient > 0.0, gradient + c * weights, 0.0 * gradient);
        const quantity ratio = gspmd::detail::trust_ratio(p, weights, step, trust);
        const quantity v = decay * s[0] + lr.as(type) * ratio * (d + c * p);
        return {p - v, v};
      };
      all.each(each, next.params, grads, next.state.velocity);
    }
    return next;
  }
};

/// LAMB: Adam's direction plus weight_decay * p, scaled to the norm of p. Norms are over whole tensors, not over
/// shards. See optimizer.hpp.
///
/// **Source.** You et al. 2020, Algorithm 2, with the identity as phi.
struct lamb {
  schedule rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 1e-2;
  decay_mask decays = nullptr;

  template <class Params>
  constexpr adam_state<Params> init(const Params& params, location at = location::current()) const {
    return adam{}.init(params, at);
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    updated<Params, State> next{params, state};
    if constexpr (gspmd::detail::is_update<Params, Grads, State, adam_state<Params>>()) {
      gspmd::detail::parameter_update all(gspmd::detail::graph_in(params), "lamb", at);
      const quantity count = all.count(next.state.step), lr = all.rate(rate.of(count), given_rate);
      const gspmd::detail::adam_moments moments(beta1, beta2, epsilon, count);
      const auto each = [&](quantity p, quantity d, std::array<quantity, 2> s) -> std::array<quantity, 3> {
        if (!all.is_state(s[0], p.tensor().shape()) || !all.is_state(s[1], p.tensor().shape())) return {p, s[0], s[1]};
        const auto m = moments.of(d, s);
        const quantity direction = m.direction_times(moments.first_correction);
        const double c = all.decay(weight_decay, decays);
        const quantity step = c != 0 ? direction + c * p : direction;
        const quantity ratio = gspmd::detail::trust_ratio(p, gspmd::detail::norm_of(p), gspmd::detail::norm_of(step), 1);
        return {p - lr.as(p.tensor().type()) * ratio * step, m.first, m.second};
      };
      all.each(each, next.params, grads, next.state.first, next.state.second);
    }
    return next;
  }
};

}  // namespace gspmd::optimizer
