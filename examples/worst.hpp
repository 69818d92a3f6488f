// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

/// For the checks of the examples: returns the larger of an earlier error and the difference of two numbers. NaN counts as the
/// largest error.
inline double worse(double error, double found, double wanted) {
  const double difference = std::fabs(found - wanted);
  return difference <= error ? error : difference;
}
