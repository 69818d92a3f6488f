// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/support/foreign_names.hpp"
#include "gspmd/program/inputs.hpp"

namespace gspmd::detail {

/// Returns true if a program may return `Result`; if not, reports it. `Lists` permits vectors, as in a program that is
/// made at run time.
template <class Result, bool Lists = false>
consteval bool returns_values() {
  if constexpr (std::is_void_v<Result>)
    static_assert(written_so<Result>,
                  "gspmd: compile: the callable returns nothing; return a value, or a tuple or struct of values");
  else
    static_assert(is_tree_of<Result, value, Lists>(),
                  "gspmd: compile: the callable must return a value, or a tuple, an array or a struct without constructors that "
                  "contains only values; for a number write constant<float>(x, {}, number)");
  return is_tree_of<Result, value, Lists>();
}

}  // namespace gspmd::detail
