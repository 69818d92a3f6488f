// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>

#include "gspmd/plan/budget.hpp"
#include "gspmd/report/network.hpp"

/// The price of a plan, and the comparison of prices. Both are the same at compile time and at run time.
namespace gspmd::detail {

/// The price of a plan. A plan that fits into the memory of a device is better than a plan that does not. If both fit,
/// these are compared in this order: picoseconds, bytes sent, bytes held. The smaller number is better. If both do not
/// fit, bytes held are compared first.
struct plan_price {
  bool fits = true;
  std::int64_t picoseconds = 0;  // of a step
  std::int64_t bytes = 0;        // sent by a device
  std::int64_t memory = 0;       // bytes held by a device
  double communication = 0, computation = 0;

  [[nodiscard]] constexpr double seconds() const { return communication + computation; }
  friend constexpr bool operator<(const plan_price& a, const plan_price& b) {
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return std::tuple(a.memory, a.picoseconds) < std::tuple(b.memory, b.picoseconds);
    return std::tuple(a.picoseconds, a.bytes, a.memory) < std::tuple(b.picoseconds, b.bytes, b.memory);
  }
};

constexpr plan_price price_of(const plan_view& plan, const mesh_info& mesh, const network_rates& rates) {
  const auto time = estimate_plan(plan, mesh, rates);
  return {true,
          static_cast<std::int64_t>(time.total() * 1e12 + 0.5),
          traffic(plan, mesh).bytes,
          peak_bytes(plan),
          time.communication,
          time.computation};
}

/// Decides which programs are planned again within the memory of a device. This takes many plans, so it is done only if
/// it can help. The new plan holds the inputs, and is not faster than the fastest plan. If earlier programs did not
/// fit, then the fastest plan or the inputs of this program must need less memory than before.
class memory_trials {
 public:
  constexpr explicit memory_trials(std::int64_t most_memory) : most_memory_(most_memory) {}

  /// Sets `fastest.fits`. Returns true if the fastest plan does not fit and a plan within the memory should be tried.
  constexpr bool is_worth_trying(plan_price& fastest, std::int64_t input_bytes) const {
    fastest.fits = most_memory_ <= 0 || fastest.memory <= most_memory_;
    return !fastest.fits && fastest.picoseconds < best_fitting_ && input_bytes <= most_memory_ &&
           (fastest.memory < least_memory_ || input_bytes < least_inputs_);
  }
  /// Records that no plan fits. Returns true if the fastest plan holds less than all earlier ones that did not fit.
  constexpr bool failed(const plan_price& fastest, std::int64_t input_bytes) {
    const bool is_least = fastest.memory < least_memory_;
    least_memory_ = std::min(least_memory_, fastest.memory);
    least_inputs_ = std::min(least_inputs_, input_bytes);
    return is_least;
  }
  constexpr void add(const plan_price& price) {
    if (price.fits && price.picoseconds < best_fitting_) best_fitting_ = price.picoseconds;
  }

 private:
  static constexpr auto any = std::numeric_limits<std::int64_t>::max();
  std::int64_t most_memory_;
  std::int64_t best_fitting_ = any;                       // picoseconds
  std::int64_t least_memory_ = any, least_inputs_ = any;  // bytes of programs that did not fit
};

}  // namespace gspmd::detail
