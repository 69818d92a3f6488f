// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "gspmd/error.hpp"

namespace gspmd::detail {

/// Counts the planner's work on this thread: one unit for each price that it computes and for each node that a pass
/// reads. The count of a program is the same on every machine.
struct planning_work {
  static inline constinit thread_local std::int64_t done = 0;
  static inline constinit thread_local std::int64_t limit = std::numeric_limits<std::int64_t>::max();  // of `done`
  static inline constinit thread_local std::int64_t allowed = 0;                                       // the user's limit

  static void add(std::int64_t count) {
    done += count;
    if (is_exceeded()) [[unlikely]]
      stop();
  }
  /// Returns true after the error of a planning_limit. A search then rethrows the error, because every further plan
  /// would throw it too.
  static bool is_exceeded() { return done > limit; }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] static void stop() {
    throw error("planning takes more work than the " + std::to_string(allowed) +
                " prices and nodes that a planning_limit allows");
  }
};

/// Adds to the count. Does nothing at compile time, because compilers have their own limits.
constexpr void count_planning(std::int64_t count = 1) {
  if (!std::is_constant_evaluated()) planning_work::add(count);
}

}  // namespace gspmd::detail
