// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/target.hpp"

/// What every elementwise opcode means on one element, after StableHLO, for the static and the run-time path alike.
///
/// Nothing here is undefined, whatever the operands. Choices are written as selects, because a branch would keep the loop from
/// being vectorised.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// True when `op` exists on operands of `type` (of select: the type of the two values). `map` depends on its function.
constexpr bool is_defined(opcode op, dtype type) {
  const bool is_number = type != dtype::pred;
  switch (op) {
    case opcode::abs:
    case opcode::negate:
    case opcode::sign:
    case opcode::relu:
    case opcode::add:
    case opcode::subtract:
    case opcode::multiply:
    case opcode::divide:
    case opcode::power: return is_number;
    case opcode::exponential:
    case opcode::log:
    case opcode::sqrt:
    case opcode::rsqrt:
    case opcode::tanh:
    case opcode::logistic:
    case opcode::sine:
    case opcode::cosine:
    case opcode::floor:
    case opcode::ceil: return is_floating(type);
    case opcode::not_:
    case opcode::and_:
    case opcode::or_: return !is_floating(type);
    case opcode::convert:
    case opcode::maximum:
    case opcode::minimum:
    case opcode::compare_eq:
    case opcode::compare_ne:
    case opcode::compare_lt:
    case opcode::compare_le:
    case opcode::compare_gt:
    case opcode::compare_ge:
    case opcode::select: return true;
    default: return false;
  }
}

/// Float to integer goes to the nearest end of the range, NaN to 0. Integers wrap around. To pred: is it not 0?
template <class To, class From>
[[gnu::always_inline]] constexpr To convert_element(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr To most = std::numeric_limits<To>::max();
    constexpr From least = static_cast<From>(std::numeric_limits<To>::min());  // a power of two: exact
    const From from_below = x >= least ? x : least;
    const bool fits_above = x < -least;
    const To inside = static_cast<To>(fits_above ? from_below : From{});
    const To bounded = fits_above ? inside : most;
    return x != x ? To{} : bounded;
  } else if constexpr (std::is_same_v<From, bool> && std::is_floating_point_v<To>) {
    return choose(x, To(1), To(0));  // the plain conversion keeps GCC from vectorising
  } else {
    return static_cast<To>(x);
  }
}

/// x / 0 = -1, and the least integer divided by -1 is itself.
template <class T>
[[gnu::always_inline]] constexpr T divide_integers(T a, T b) {
  constexpr T least = std::numeric_limits<T>::min();
  const bool is_zero = b == 0;
  const bool overflows = (a == least) & (b == -1);
  const T quotient = static_cast<T>(a / ((is_zero | overflows) ? T(1) : b));
  return is_zero ? T(-1) : quotient;
}

/// A negative exponent gives the reciprocal rounded towards 0, which only 1 and -1 have; 0 stays 0.
template <class T>
constexpr T power_of_integers(T base, T exponent) {
  using natural = std::make_unsigned_t<T>;
  if (exponent < 0) return base == 1 ? T(1) : base != -1 ? T(0) : (exponent & 1) != 0 ? T(-1) : T(1);
  natural result = 1;
  natural square = static_cast<natural>(base);
  for (natural left = static_cast<natural>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

/// An operator of one operand.
template <opcode Op, class Out, class In>
[[gnu::always_inline]] inline Out apply(In x) {
  static_assert(is_unary(Op) && is_defined(Op, dtype_of<In>()));
  if constexpr (Op == opcode::convert) {
    return convert_element<Out>(x);
  } else if constexpr (Op == opcode::not_) {
    if constexpr (std::is_same_v<In, bool>) return !x;
    else return static_cast<Out>(~x);
  } else if constexpr (Op == opcode::sign) {
    const In negative_or_same = x < In{} ? In(-1) : x;  // 0, -0.0 and NaN stay what they are
    return x > In{} ? In(1) : negative_or_same;
  } else if constexpr (Op == opcode::relu) {
    return x <= In{} ? In{} : x;  // a NaN stays
  } else if constexpr (std::is_integral_v<In>) {
    using natural = std::make_unsigned_t<In>;
    const In negated = static_cast<In>(natural{} - static_cast<natural>(x));
    if constexpr (Op == opcode::negate) return negated;
    else return x < 0 ? negated : x;  // abs
  } else {
    if constexpr (Op == opcode::negate) return -x;
    else if constexpr (Op == opcode::abs) return absolute(x);
    else if constexpr (Op == opcode::exponential) return exponential(x);
    else if constexpr (Op == opcode::log) return logarithm(x);
    else if constexpr (Op == opcode::sqrt) return square_root(x);
    else if constexpr (Op == opcode::rsqrt) return In(1) / square_root(x);
    else if constexpr (Op == opcode::tanh) return hyperbolic_tangent(x);
    else if constexpr (Op == opcode::logistic) return logistic_function(x);
    else if constexpr (Op == opcode::sine) return std::sin(x);
    else if constexpr (Op == opcode::cosine) return std::cos(x);
    else if constexpr (Op == opcode::floor) return round_down(x);
    else return round_up(x);
  }
}

/// An operator of two operands.
template <opcode Op, class Out, class In>
[[gnu::always_inline]] inline Out apply(In a, In b) {
  static_assert(is_binary(Op) && is_defined(Op, dtype_of<In>()));
  if constexpr (Op == opcode::compare_eq) return a == b;
  else if constexpr (Op == opcode::compare_ne) return a != b;
  else if constexpr (Op == opcode::compare_lt) return a < b;
  else if constexpr (Op == opcode::compare_le) return a <= b;
  else if constexpr (Op == opcode::compare_gt) return a > b;
  else if constexpr (Op == opcode::compare_ge) return a >= b;
  else if constexpr (Op == opcode::maximum)
    return ((a != a) | (a > b)) ? a : b;  // a NaN on either side wins; so does `b` of two zeros
  else if constexpr (Op == opcode::minimum) return ((a != a) | (a < b)) ? a : b;
  else if constexpr (Op == opcode::and_ || Op == opcode::or_) {
    if constexpr (std::is_same_v<In, bool>) return static_cast<bool>(Op == opcode::and_ ? a & b : a | b);
    else return static_cast<Out>(Op == opcode::and_ ? a & b : a | b);
  } else if constexpr (std::is_integral_v<In>) {
    using natural = std::make_unsigned_t<In>;
    if constexpr (Op == opcode::divide) return divide_integers(a, b);
    else if constexpr (Op == opcode::power) return power_of_integers(a, b);
    else if constexpr (Op == opcode::add) return static_cast<Out>(static_cast<natural>(a) + static_cast<natural>(b));
    else if constexpr (Op == opcode::subtract) return static_cast<Out>(static_cast<natural>(a) - static_cast<natural>(b));
    else return static_cast<Out>(static_cast<natural>(a) * static_cast<natural>(b));
  } else {
    if constexpr (Op == opcode::add) return a + b;
    else if constexpr (Op == opcode::subtract) return a - b;
    else if constexpr (Op == opcode::multiply) return a * b;
    else if constexpr (Op == opcode::divide) return a / b;
    else return std::pow(a, b);
  }
}

/// The choice between two values.
template <opcode Op, class Out, class In>
[[gnu::always_inline]] inline Out apply(bool which, In on_true, In on_false) {
  static_assert(Op == opcode::select);
  return which ? on_true : on_false;
}

/// The member of a map that takes elements of type T; null where the user's function does not.
template <class T>
constexpr auto function_for(const map_function& f) {
  return std::get<map_element<T>>(f.of);
}

/// True when the user's function takes elements of `type`.
constexpr bool accepts(const map_function& f, dtype type) {
  bool result = f.rows[static_cast<int>(type)] != nullptr;
  with_element_type(type, [&]<class T>(T) { result = result || function_for<T>(f) != nullptr; });
  return result;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
