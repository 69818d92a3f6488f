// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/nn/detail/quantity.hpp"

namespace gspmd::optimizer {

/// A learning rate that changes from update to update, for the member `rate` of optimizers. A number is a constant
/// rate. The functions below return other schedules.
///
/// The program computes the rate from the counter in the optimizer's state, as one double on each device.
///
/// **Communication.** None.
/// **Errors.** A number of updates below 1.
/// **Example.**
///
///     optimizer::adam{.rate = optimizer::warm_up(100, optimizer::cosine_decay(3e-4, 10'000))}
struct schedule {
  enum class decay : std::uint8_t { none, cosine, exponential, steps };

  double peak = 0;
  decay falls = decay::none;
  std::int64_t over = 1;  // updates: the length of a cosine, or the updates for one factor
  double last = 0;        // the rate at the end of a cosine, or the factor
  std::int64_t warm = 1;  // updates until `peak` is reached

  constexpr schedule(double rate) : peak(rate) {}  // NOLINT: implicit on purpose
  constexpr schedule(double rate, decay by, std::int64_t updates, double to) : peak(rate), falls(by), over(updates), last(to) {}

  /// Returns the rate after `updates` updates: a double of rank 0.
  [[nodiscard]] constexpr gspmd::detail::quantity of(const gspmd::detail::quantity& updates) const {
    using gspmd::detail::quantity;
    if (over < 1 || warm < 1) {
      updates.tensor().graph()->fail(updates.at(), "schedule", gspmd::detail::mistake::number,
                                     gspmd::detail::text("the rate changes over ")
                                         << (over < 1 ? over : warm) << " updates; give it 1 or more");
      return peak;
    }
    const auto length = static_cast<double>(over);
    const bool is_warmed = warm > 1 && falls != decay::none;  // then the decay begins after the warm-up
    const quantity n = is_warmed ? max(updates - static_cast<double>(warm), 0.0) : updates;
    quantity rate = peak;
    if (falls == decay::cosine) {
      constexpr double pi = 3.14159265358979323846;
      rate = (peak - last) / 2 * cos(min(n, length) * (pi / length)) + (peak + last) / 2;
    } else if (falls == decay::exponential) {
      rate = peak * pow(last, n / length);
    } else if (falls == decay::steps) {
      rate = peak * pow(last, floor(n / length));
    }
    return warm > 1 ? rate * min((updates + 1.0) / static_cast<double>(warm), 1.0) : rate;
  }
};

/// Returns a schedule that falls from `rate` to `last` along half a cosine in `updates` updates, and then stays at
/// `last`.
///
/// **Source.** Loshchilov and Hutter 2017, without restarts.
constexpr schedule cosine_decay(double rate, std::int64_t updates, double last = 0) {
  return {rate, schedule::decay::cosine, updates, last};
}
/// Returns the schedule rate * factor^(n / updates) at update n, counted from 0.
constexpr schedule exponential_decay(double rate, std::int64_t updates, double factor) {
  return {rate, schedule::decay::exponential, updates, factor};
}
/// Returns the schedule rate * factor^floor(n / updates): one step down after each `updates` updates.
constexpr schedule step_decay(double rate, std::int64_t updates, double factor) {
  return {rate, schedule::decay::steps, updates, factor};
}
/// Returns `then` with a linear warm-up: the rate at update n is (n + 1) / updates of the first rate. The decay of
/// `then` begins after the warm-up.
constexpr schedule warm_up(std::int64_t updates, schedule then) {
  then.warm = updates;
  return then;
}

}  // namespace gspmd::optimizer
