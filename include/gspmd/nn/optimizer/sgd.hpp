// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "gspmd/nn/optimizer/schedules.hpp"
#include "gspmd/nn/optimizer/update.hpp"

namespace gspmd::optimizer {

/// The state of sgd: the number of updates so far.
template <class Count = value>
struct sgd_state {
  Count step;
};

/// Gradient descent: p - rate * (gradient + weight_decay * p). See optimizer.hpp.
struct sgd {
  schedule rate = 1e-3;
  double weight_decay = 0;
  decay_mask decays = nullptr;

  template <class Params>
  constexpr sgd_state<> init(const Params& params, location at = location::current()) const {
    return {gspmd::detail::no_updates(params, at)};
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    updated<Params, State> next{params, state};
    if constexpr (gspmd::detail::is_update<Params, Grads, State, sgd_state<>>()) {
      gspmd::detail::parameter_update all(gspmd::detail::graph_in(params), "sgd", at);
      const quantity lr = all.rate(rate.of(all.count(next.state.step)), given_rate);
      const auto each = [&](quantity p, quantity d, std::array<quantity, 0>) -> std::array<quantity, 1> {
        if (const double c = all.decay(weight_decay, decays); c != 0) d = d + c * p;
        return {p - lr.as(p.tensor().type()) * d};
      };
      all.each(each, next.params, grads);
    }
    return next;
  }
};

/// The state of momentum: the velocity of each parameter and the number of updates so far.
template <class Params, class Count = value>
struct momentum_state {
  Params velocity;
  Count step;
};

}  // namespace gspmd::optimizer

namespace gspmd::detail {

/// Returns the parameters and the state after an update by momentum or LARS. `step(rate, decay, parameter, gradient,
/// old velocity)` returns the new parameter and its velocity.
template <class Optimizer, class Params, class Grads, class State, class Step>
constexpr optimizer::updated<Params, State> updated_by_momentum(const Optimizer& o, const char* name, const Params& params,
                                                                const Grads& grads, const State& state, value given_rate,
                                                                location at, Step step) {
  optimizer::updated<Params, State> next{params, state};
  if constexpr (is_update<Params, Grads, State, optimizer::momentum_state<Params>>()) {
    parameter_update all(graph_in(params), name, at);
    const quantity lr = all.rate(o.rate.of(all.count(next.state.step)), given_rate);
    const auto each = [&](quantity p, quantity d, std::array<quantity, 1> s) -> std::array<quantity, 2> {
      if (!all.is_state(s[0], p.tensor().shape())) return {p, s[0]};
      return step(lr, all.decay(o.weight_decay, o.decays), p, d, s[0]);
    };
    all.each(each, next.params, grads, next.state.velocity);
  }
  return next;
}

}  // namespace gspmd::detail

namespace gspmd::optimizer {

/// Gradient descent with momentum, as in torch.optim.SGD. The velocity becomes decay * velocity + gradient, and p
/// decreases by rate * velocity. See optimizer.hpp.
///
/// With `nesterov`, p decreases by rate * (gradient + decay * velocity). Weight decay is added to the gradient.
///
/// **Source.** Sutskever et al. 2013, except that the velocity does not contain the rate.
struct momentum {
  schedule rate = 1e-3;
  double decay = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  decay_mask decays = nullptr;

  template <class Params>
  constexpr momentum_state<Params> init(const Params& params, location at = location::current()) const {
    return {gspmd::detail::all_zeros_beside(params, at), gspmd::detail::no_updates(params, at)};
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    const auto step = [this](const quantity& lr, double c, const quantity& p, quantity d,
                             const quantity& velocity) -> std::array<quantity, 2> {
      if (c != 0) d = d + c * p;
      const quantity v = decay * velocity + d;
      return {p - lr.as(p.tensor().type()) * (nesterov ? d + decay * v : v), v};
    };
    return gspmd::detail::updated_by_momentum(*this, "momentum", params, grads, state, given_rate, at, step);
  }
};

}  // namespace gspmd::optimizer
