// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Returns the square root of a number from 1e-18 to 1e18 by Newton's iteration, because std::sqrt is not constexpr.
constexpr double square_root_of(double x) {
  double root = x > 1 ? x : 1;
  for (int i = 0; i < 80; ++i) root = (root + x / root) / 2;
  return root;
}

}  // namespace gspmd::detail
