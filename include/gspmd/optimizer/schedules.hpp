// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/optimizer/quantity.hpp"

namespace gspmd::optimizer {

/// How a learning rate changes from update to update: what optimizers take as their `rate`. A number is a rate that stays; the functions
/// below give the others. A program computes it from the counter in the optimizer's state, as one double on every device; nothing is sent.
///
///     optimizer::adam{.rate = optimizer::warm_up(100, optimizer::cosine_decay(3e-4, 10'000))}
struct schedule {
  enum class decay : std::uint8_t { none, cosine, exponential, steps };

  double peak = 0;
  decay falls = decay::none;
  std::int64_t over = 1;  // updates: until the end of a cosine, for one factor of the others
  double last = 0;        // the rate at the end of a cosine; the factor of the others
  std::int64_t warm = 1;  // updates until `peak` is reached

  constexpr schedule(double rate) : peak(rate) {}  // NOLINT: implicit on purpose
  constexpr schedule(double rate, decay by, std::int64_t updates, double to) : peak(rate), falls(by), over(updates), last(to) {}

  /// The rate of the update that `updates` others came before: of rank 0, a double.
  [[nodiscard]] constexpr gspmd::detail::quantity of(const gspmd::detail::quantity& updates) const {
    using gspmd::detail::quantity;
    if (over < 1 || warm < 1) {
      updates.tensor().graph()->fail(updates.at(), "schedule", gspmd::detail::mistake::number,
                                     gspmd::detail::text("the rate changes over ")
                                         << (over < 1 ? over : warm) << " updates; give it 1 or more");
      return peak;
    }
    const auto length = static_cast<double>(over);
    const bool is_warmed = warm > 1 && falls != decay::none;  // then its decay begins behind the warm-up
    const quantity n = is_warmed ? maximum(updates - static_cast<double>(warm), 0.0) : updates;
    quantity rate = peak;
    if (falls == decay::cosine) {
      constexpr double pi = 3.14159265358979323846;
      rate = (peak - last) / 2 * cosine(minimum(n, length) * (pi / length)) + (peak + last) / 2;
    } else if (falls == decay::exponential) {
      rate = peak * power(last, n / length);
    } else if (falls == decay::steps) {
      rate = peak * power(last, floor(n / length));
    }
    return warm > 1 ? rate * minimum((updates + 1.0) / static_cast<double>(warm), 1.0) : rate;
  }
};

/// From `rate` to `last` along half a cosine in so many updates, and `last` from there on (Loshchilov and Hutter 2017, without restarts).
constexpr schedule cosine_decay(double rate, std::int64_t updates, double last = 0) {
  return {rate, schedule::decay::cosine, updates, last};
}
/// rate * factor^(n / updates) at update n, counted from 0.
constexpr schedule exponential_decay(double rate, std::int64_t updates, double factor) {
  return {rate, schedule::decay::exponential, updates, factor};
}
/// rate * factor^floor(n / updates): a step down after every so many updates.
constexpr schedule step_decay(double rate, std::int64_t updates, double factor) {
  return {rate, schedule::decay::steps, updates, factor};
}
/// `then`, but rising to its first rate in so many updates: (n + 1) / updates of it at update n. What decays begins to behind them.
constexpr schedule warm_up(std::int64_t updates, schedule then) {
  then.warm = updates;
  return then;
}

}  // namespace gspmd::optimizer
