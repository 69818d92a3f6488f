// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/types.hpp"

/// The reductions on single elements, shared by the local kernels and the communicators.
namespace gspmd::detail {

/// True when `kind` is defined on elements of type T: bitwise operations have no meaning on floats, and sums none on bool.
template <class T>
constexpr bool monoid_is_defined(monoid kind) {
  const bool bitwise = kind == monoid::and_ || kind == monoid::or_;
  if (std::is_floating_point_v<T>) return !bitwise;
  if (std::is_same_v<T, bool>) return bitwise || kind == monoid::maximum || kind == monoid::minimum;
  return true;
}

/// The value that changes nothing, which is also the reduction of no elements. Of a kind that T does not have, it is T{}.
template <class T>
constexpr T identity(monoid kind) {
  using limits = std::numeric_limits<T>;
  switch (kind) {
    case monoid::add:
    case monoid::or_: return T{};
    case monoid::multiply: return T(1);
    case monoid::and_:
      if constexpr (std::is_same_v<T, bool>) return true;
      else if constexpr (std::is_integral_v<T>) return static_cast<T>(~T{});
      else return T{};
    case monoid::maximum:
      if constexpr (limits::has_infinity) return -limits::infinity();
      else return limits::lowest();
    case monoid::minimum:
      if constexpr (limits::has_infinity) return limits::infinity();
      else return limits::max();
  }
  return T{};
}

/// Addition that wraps around on integers instead of being undefined.
template <class T>
constexpr T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_integral_v<T>) {
    using u = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<u>(a) + static_cast<u>(b));
  } else return a + b;
}

/// Multiplication that wraps around on integers.
template <class T>
constexpr T wrapping_multiply(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) return a && b;
  else if constexpr (std::is_integral_v<T>) {
    using u = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<u>(a) * static_cast<u>(b));
  } else return a * b;
}

/// combine with the kind as a template argument, for inner loops.
template <monoid Kind, class T>
constexpr T combine(T a, T b) {
  if constexpr (Kind == monoid::add) return wrapping_add(a, b);
  else if constexpr (Kind == monoid::multiply) return wrapping_multiply(a, b);
  else if constexpr (Kind == monoid::maximum) {
    // A NaN on either side must win (StableHLO): a NaN `a` is kept, and `b` is taken unless it compares less.
    if constexpr (std::is_floating_point_v<T>) return ((a != a) | (a > b)) ? a : b;
    else return a > b ? a : b;
  } else if constexpr (Kind == monoid::minimum) {
    if constexpr (std::is_floating_point_v<T>) return ((a != a) | (a < b)) ? a : b;
    else return a < b ? a : b;
  } else if constexpr (std::is_same_v<T, bool>) {
    return Kind == monoid::and_ ? a && b : a || b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(Kind == monoid::and_ ? a & b : a | b);
  } else {
    return a;  // refused long before: see monoid_is_defined
  }
}

/// The reduction of two elements. Integers wrap around; a NaN wins a maximum or a minimum.
template <class T>
constexpr T combine(monoid kind, T a, T b) {
  switch (kind) {
    case monoid::add: return combine<monoid::add>(a, b);
    case monoid::multiply: return combine<monoid::multiply>(a, b);
    case monoid::maximum: return combine<monoid::maximum>(a, b);
    case monoid::minimum: return combine<monoid::minimum>(a, b);
    case monoid::and_: return combine<monoid::and_>(a, b);
    case monoid::or_: return combine<monoid::or_>(a, b);
  }
  return a;
}

}  // namespace gspmd::detail
