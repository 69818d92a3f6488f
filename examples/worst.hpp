// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

/// For the checks of the examples: the larger one of an error so far and of the difference of two numbers. What is no number is the largest.
inline double worse(double error, double found, double wanted) {
  const double difference = std::fabs(found - wanted);
  return difference <= error ? error : difference;
}
