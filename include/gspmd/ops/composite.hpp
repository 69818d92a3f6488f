// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include "gspmd/ops/elementwise.hpp"

/// The rule for functions that are composed of operators (mean, softmax, optimizers): a composite computes in float if
/// its operands are bf16 or f16. It rounds once, at its result. Otherwise each operator would round, and sums of
/// squares of f16 would overflow.
namespace gspmd::detail {

/// Returns the type that a composite computes in: f32 for bf16 and f16, otherwise the type itself.
constexpr dtype composite_type(dtype type) { return is_floating(type) ? computed_as(type) : type; }

/// Returns integers and bool as double, and other types unchanged.
constexpr value double_of_integers(value x, location at) {
  return !x.is_valid() || is_floating(x.type()) || is_own(x.type()) ? x : converted(x, dtype::f64, at);
}

/// Returns a term that a loop adds to a sum: `x` in the type that composites compute in.
///
/// **Communication.** None. If x is partial, the sum stays partial until the loop ends, as without the conversion.
constexpr value widened_term(value x, location at) {
  const value wide = converted(x, composite_type(x.type()), at);
  if (wide.is_valid() && wide.id() != x.id())
    wide.graph()->nodes[static_cast<std::size_t>(wide.id())].integer = cast_op::widened_term;
  return wide;
}

/// Returns f(operands...). If `first` is bf16 or f16, f gets its bf16 and f16 operands as float, and its result is
/// rounded to the type of `first`. For other types this is f(operands...) and adds no node. Gradients pass through the
/// same float operators.
///
/// **Communication.** The communication of f. If f reduces over a split dim, the all_reduce moves floats, twice the
/// bytes of bf16 or f16. In the explicit and manual modes the user writes that all_reduce, after the result: each
/// device rounds its partial value (docs/reference/types.md).
/// **Example.** rounded_once(at, [&](value x) { return sqrt(sum(x * x)); }, gradient)
template <class F, std::same_as<value>... Others>
constexpr value rounded_once(location at, F f, value first, Others... others) {
  const dtype type = first.type();
  const auto wide = [at](value x) { return converted(x, composite_type(x.type()), at); };
  const value result = f(wide(first), wide(others)...);
  return composite_type(type) == type ? result : converted(result, type, at);
}

}  // namespace gspmd::detail
