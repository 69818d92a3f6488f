// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "gspmd/detail/support/planning_work.hpp"
#include "gspmd/detail/support/positive_limit.hpp"
#include "gspmd/error.hpp"

namespace gspmd::dynamic {

/// Limits the planning work of this thread while the object exists. Use it to plan programs from people you do not
/// trust.
///
/// A unit of work is one cost that the planner computes, or one node that a pass reads. A program takes the same number
/// of units on every machine and in every run. If a limit is set inside another limit, the stricter limit holds.
///
/// **Threads.** The limit applies to the thread that constructs the object.
/// **Example.**
///
///     const dynamic::planning_limit limit(1'000'000);
///     const dynamic::program p = b.compile();   // throws gspmd::error if that takes more than a million units of work
class planning_limit {
 public:
  /// Throws gspmd::error if `units` is not positive.
  explicit planning_limit(std::int64_t units)
      : begin_(work::done), end_(work::limit - begin_ < units ? work::limit : begin_ + units) {
    if (const auto why = detail::why_refused("planning_limit: units", units); !why.empty()) throw error(why);
    outer_end_ = std::exchange(work::limit, end_);
    outer_units_ = std::exchange(work::allowed, end_ == outer_end_ ? work::allowed : units);
  }
  ~planning_limit() {
    work::limit = outer_end_;
    work::allowed = outer_units_;
  }
  planning_limit(const planning_limit&) = delete;
  planning_limit& operator=(const planning_limit&) = delete;

  /// Returns the units of work since the limit was set.
  [[nodiscard]] std::int64_t used() const { return work::done - begin_; }
  /// Returns true if planning was stopped, even if the error was caught.
  [[nodiscard]] bool is_exceeded() const { return work::done > end_; }

 private:
  using work = detail::planning_work;
  std::int64_t begin_, end_, outer_end_ = 0, outer_units_ = 0;
};

}  // namespace gspmd::dynamic
