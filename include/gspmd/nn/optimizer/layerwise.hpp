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
  const quantity ratio = where(step > 0.0, trust * weights / step, 1.0);
  return where(weights > 0.0, ratio, 1.0).as(p.tensor().type());
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
    const auto step = [this](const quantity& lr, double c, const quantity& p, quantity d,
                             const quantity& velocity) -> std::array<quantity, 2> {
      const dtype type = p.tensor().type();
      const quantity weights = gspmd::detail::norm_of(p), gradient = gspmd::detail::norm_of(d);
      const quantity norm = where(gradient > 0.0, gradient + c * weights, 0.0 * gradient);
      const quantity ratio = gspmd::detail::trust_ratio(p, weights, norm, trust);
      const quantity v = decay * velocity + lr.as(type) * ratio * (d + c * p);
      return {p - v, v};
    };
    return gspmd::detail::updated_by_momentum(*this, "lars", params, grads, state, given_rate, at, step);
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
    const auto step = [](const gspmd::detail::adam_moments& moments, const quantity& lr, double c, const quantity& p,
                         const quantity& d, const std::array<quantity, 2>& s) -> std::array<quantity, 3> {
      const auto m = moments.of(d, s);
      const quantity direction = m.direction_times(moments.first_correction);
      const quantity whole = c != 0 ? direction + c * p : direction;
      const quantity ratio = gspmd::detail::trust_ratio(p, gspmd::detail::norm_of(p), gspmd::detail::norm_of(whole), 1);
      return {p - lr.as(p.tensor().type()) * ratio * whole, m.first, m.second};
    };
    return gspmd::detail::updated_by_adam(*this, "lamb", params, grads, state, given_rate, at, step);
  }
};

}  // namespace gspmd::optimizer
