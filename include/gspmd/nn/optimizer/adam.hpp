// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "gspmd/nn/optimizer/schedules.hpp"
#include "gspmd/nn/optimizer/update.hpp"

namespace gspmd::optimizer {

/// The state of Adam, AdamW and LAMB: the two moments, in groups like the parameters, and the counter of updates.
template <class Params, class Count = value>
struct adam_state {
  Params first, second;
  Count step;
};

}  // namespace gspmd::optimizer

namespace gspmd::detail {

/// The moments after an update, and the direction of the step (Kingma and Ba 2015, Algorithm 1). The bias is corrected,
/// because the moments start at 0. The corrections depend on the counter alone and are computed in double.
struct adam_moments {
  double beta1, beta2, epsilon;
  quantity first_correction, second_correction;

  constexpr adam_moments(double b1, double b2, double eps, const quantity& count)
      : beta1(b1), beta2(b2), epsilon(eps), first_correction(correction(b1, count)), second_correction(correction(b2, count)) {}

  struct result {
    quantity first, second, denominator;

    /// Returns the direction m / (sqrt(v) + epsilon) of Algorithm 1, times a scalar of the counter.
    [[nodiscard]] constexpr quantity direction_times(const quantity& factor) const {
      return factor.as(first.tensor().type()) * first / denominator;
    }
  };
  [[nodiscard]] constexpr result of(const quantity& gradient, const std::array<quantity, 2>& s) const {
    const dtype type = gradient.tensor().type();
    const quantity m = beta1 * s[0] + (1 - beta1) * gradient, v = beta2 * s[1] + (1 - beta2) * (gradient * gradient);
    return {m, v, sqrt(v * second_correction.as(type)) + epsilon};
  }

 private:
  static constexpr quantity correction(double beta, const quantity& count) {
    return count.is_number() ? quantity(1) : 1.0 / (1.0 - pow(beta, count + 1.0));
  }
};

/// Returns the parameters and the state after an update by Adam, AdamW or LAMB. `step(moments, rate, decay, parameter,
/// gradient, old moments)` returns the new parameter and its moments.
template <class Optimizer, class Params, class Grads, class State, class Step>
constexpr optimizer::updated<Params, State> updated_by_adam(const Optimizer& o, const char* name, const Params& params,
                                                            const Grads& grads, const State& state, value given_rate, location at,
                                                            Step step) {
  optimizer::updated<Params, State> next{params, state};
  if constexpr (is_update<Params, Grads, State, optimizer::adam_state<Params>>()) {
    parameter_update all(graph_in(params), name, at);
    const quantity count = all.count(next.state.step), lr = all.rate(o.rate.of(count), given_rate);
    const adam_moments moments(o.beta1, o.beta2, o.epsilon, count);
    const auto each = [&](quantity p, quantity d, std::array<quantity, 2> s) -> std::array<quantity, 3> {
      if (!all.is_state(s[0], p.tensor().shape()) || !all.is_state(s[1], p.tensor().shape())) return {p, s[0], s[1]};
      return step(moments, lr, all.decay(o.weight_decay, o.decays), p, d, s);
    };
    all.each(each, next.params, grads, next.state.first, next.state.second);
  }
  return next;
}

}  // namespace gspmd::detail

namespace gspmd::optimizer {

/// Adam, as in torch.optim.Adam: weight decay is added to the gradient. See optimizer.hpp.
///
/// **Source.** Kingma and Ba 2015, Algorithm 1.
struct adam {
  schedule rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  decay_mask decays = nullptr;

  template <class Params>
  constexpr adam_state<Params> init(const Params& params, location at = location::current()) const {
    return {gspmd::detail::all_zeros_beside(params, at), gspmd::detail::all_zeros_beside(params, at),
            gspmd::detail::no_updates(params, at)};
  }
  template <class Params, class Grads, class State>
  constexpr updated<Params, State> update(const Params& params, const Grads& grads, const State& state, value given_rate = {},
                                          location at = location::current()) const {
    using gspmd::detail::quantity;
    const auto step = [](const gspmd::detail::adam_moments& moments, const quantity& lr, double c, const quantity& p,
                         const quantity& d, const std::array<quantity, 2>& s) -> std::array<quantity, 3> {
      const auto m = moments.of(c != 0 ? d + c * p : d, s);
      return {p - m.direction_times(lr * moments.first_correction), m.first, m.second};
    };
    return gspmd::detail::updated_by_adam(*this, "adam", params, grads, state, given_rate, at, step);
  }
};

/// Adam with decoupled weight decay, as in torch.optim.AdamW: p - rate * weight_decay * p - rate * direction. See
/// optimizer.hpp.
///
/// **Source.** Loshchilov and Hutter 2019, Algorithm 2.
struct adamw {
  schedule rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
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
      const quantity kept = c != 0 ? p * (1.0 - c * lr).as(p.tensor().type()) : p;
      return {kept - m.direction_times(lr * moments.first_correction), m.first, m.second};
    };
    return gspmd::detail::updated_by_adam(*this, "adamw", params, grads, state, given_rate, at, step);
  }
};

}  // namespace gspmd::optimizer
