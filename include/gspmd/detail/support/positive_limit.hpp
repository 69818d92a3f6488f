// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdio>
#include <string>

#include "gspmd/detail/support/language.hpp"

namespace gspmd::detail {

/// Returns an error text if `value` of the limit `name` is not a positive number, else an empty text. One rule holds
/// for all limits that a program passes: 0, a negative number and NaN are errors, and a limit that is left out has its
/// default value.
///
///   why_refused("find_annotations: most_plans", 0)   "find_annotations: most_plans is 0; write a positive number, or
///                                                    leave it out"
template <class Number>
std::string why_refused(const std::string& name, Number value) {
  if (value > 0) return {};
  std::string number;
  if constexpr (std::floating_point<Number>) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", static_cast<double>(value));
    number = digits;
  } else {
    number = std::to_string(value);
  }
  return name + " is " + number + "; write a positive number, or leave it out";
}

}  // namespace gspmd::detail
