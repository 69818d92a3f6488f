// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdio>
#include <string>

namespace examples {

/// Returns the larger of an earlier error and the difference of two numbers. NaN counts as the largest error.
inline double worse(double error, double found, double wanted) {
  const double difference = std::fabs(found - wanted);
  return difference <= error ? error : difference;
}

/// Prints "check: CLAIM: ok", or "FAILED". Returns `holds`.
inline bool check(const std::string& claim, bool holds) {
  std::printf("check: %s: %s\n", claim.c_str(), holds ? "ok" : "FAILED");
  return holds;
}

/// Prints "check: WHAT 1e-9 OF; at most 1e-6 is allowed: ok", or "FAILED". Returns true if found <= most.
inline bool check_at_most(const std::string& what, double found, double most, const std::string& of = "") {
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " %.1e%s; at most %.0e is allowed", found, (of.empty() ? of : ' ' + of).c_str(), most);
  return check(what + numbers, found <= most);
}

}  // namespace examples
