// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/error_function.hpp"
#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/ir/trigonometry.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/target.hpp"

/// The meaning of every elementwise opcode on one element, after StableHLO, for the static and the run-time path alike.
///
/// Nothing here is undefined, whatever the operands. Choices are written as selects, because a branch would keep the loop from
/// being vectorised.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Whether a type of the user's own may have the operator: the compiler says whether it does.
constexpr bool is_own_operator(opcode op) {
  return op == opcode::add || op == opcode::subtract || op == opcode::multiply || op == opcode::divide || op == opcode::negate ||
         op == opcode::select || op == opcode::stop_gradient || op == opcode::convert;
}

/// True when `op` exists on operands of `type` (of select: the type of the two values). `map` depends on its function.
constexpr bool is_defined(opcode op, dtype type) {
  const bool is_number = type != dtype::pred, has_order = !is_complex(type);
  if (is_own(type)) return is_own_operator(op);
  switch (op) {
    case opcode::abs:
    case opcode::negate:
    case opcode::add:
    case opcode::subtract:
    case opcode::multiply:
    case opcode::divide: return is_number;
    case opcode::sign:
    case opcode::relu:
    case opcode::remainder:
    case opcode::power: return is_number && has_order;
    case opcode::real:
    case opcode::imag:
    case opcode::conj: return !has_order;
    case opcode::complex: return type == dtype::f32 || type == dtype::f64;
    case opcode::exponential: return is_floating(type);
    case opcode::log:
    case opcode::sqrt:
    case opcode::rsqrt:
    case opcode::tanh:
    case opcode::logistic:
    case opcode::sine:
    case opcode::cosine:
    case opcode::floor:
    case opcode::ceil:
    case opcode::expm1:
    case opcode::log1p:
    case opcode::erf:
    case opcode::erf_inv:
    case opcode::cbrt:
    case opcode::atan2: return is_floating(type) && has_order;
    case opcode::not_:
    case opcode::and_:
    case opcode::or_:
    case opcode::xor_: return !is_floating(type);
    case opcode::shift_left:
    case opcode::shift_right: return facts_of(type).is_integer;
    case opcode::threefry2x32: return type == dtype::u64;
    case opcode::maximum:
    case opcode::minimum:
    case opcode::compare_lt:
    case opcode::compare_le:
    case opcode::compare_gt:
    case opcode::compare_ge: return has_order;
    case opcode::convert:
    case opcode::stop_gradient:
    case opcode::compare_eq:
    case opcode::compare_ne:
    case opcode::select: return true;
    default: return false;
  }
}

/// The type of an elementwise operator's result.
constexpr dtype result_type(opcode op, dtype in, dtype to) {
  if (is_compare(op)) return dtype::pred;
  switch (op) {
    case opcode::convert: return to;
    case opcode::abs:
    case opcode::real:
    case opcode::imag: return part_of(in);
    case opcode::complex: return in == dtype::f64 ? dtype::c128 : dtype::c64;
    default: return in;
  }
}

/// Whether kernels convert between two types. All other conversions are made of several of these (loop_group::converted).
constexpr bool is_converted_directly(dtype from, dtype to) {
  if (is_complex(from)) return is_complex(to);
  if (is_narrow(from)) return to == computed_as(from);
  if (!is_narrow(to)) return true;
  return is_floating(to) ? is_floating(from) : from == computed_as(to);
}

/// Float to integer goes to the nearest end of the range, NaN to 0. Integers wrap around. To pred: is it not 0?
template <class To, class From>
[[gnu::always_inline]] constexpr To convert_element(From x) {
  if constexpr (own_element<To> || own_element<From>) {
    static_assert(
        std::is_constructible_v<To, From>,
        "gspmd: convert: an element type of your own is converted where static_cast does it; give it such a constructor or "
        "operator");
    return static_cast<To>(x);
  } else if constexpr (is_complex_element<To>) {
    return To(x);
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr To most = std::numeric_limits<To>::max();
    constexpr From least = static_cast<From>(std::numeric_limits<To>::min());  // a power of two or 0: exact
    constexpr From past = static_cast<From>(To{1} << (std::numeric_limits<To>::digits - 1)) * 2;
    const From from_below = x >= least ? x : least;
    const bool fits_above = x < past;
    const To inside = static_cast<To>(fits_above ? from_below : From{});
    const To bounded = fits_above ? inside : most;
    return x != x ? To{} : bounded;
  } else if constexpr (std::is_same_v<From, bool> && std::is_floating_point_v<To>) {
    return choose(x, To(1), To(0));  // the plain conversion keeps GCC from vectorising
  } else {
    return static_cast<To>(x);
  }
}

/// x / 0 has all bits set, which is -1 of signed integers, and the least integer divided by -1 is itself.
template <class T>
[[gnu::always_inline]] constexpr T divide_integers(T a, T b) {
  const bool is_zero = b == 0;
  bool overflows = false;
  if constexpr (std::is_signed_v<T>) overflows = (a == std::numeric_limits<T>::min()) & (b == T(-1));
  const T quotient = static_cast<T>(a / ((is_zero | overflows) ? T(1) : b));
  return is_zero ? static_cast<T>(-1) : quotient;
}

/// x % 0 is x, and what is left of the least integer by -1 is 0. It has the sign of x.
template <class T>
[[gnu::always_inline]] constexpr T remainder_of_integers(T a, T b) {
  bool is_one = b == 0;  // a % 1 is 0
  if constexpr (std::is_signed_v<T>) is_one = is_one | (b == T(-1));
  const T left = static_cast<T>(a % (is_one ? T(1) : b));
  return b == 0 ? a : left;
}

/// Threefry-2x32 with 20 rounds, a block cipher that makes random numbers of counters (Salmon, Moraes, Dror and Shaw, Parallel Random
/// Numbers: As Easy as 1, 2, 3, 2011). Of counter, key and result word 0 is the upper half.
[[gnu::always_inline]] constexpr std::uint64_t threefry2x32(std::uint64_t counter, std::uint64_t key) {
  const auto k0 = static_cast<std::uint32_t>(key >> 32), k1 = static_cast<std::uint32_t>(key), k2 = k0 ^ k1 ^ 0x1bd11bdaU;
  std::uint32_t x0 = static_cast<std::uint32_t>(counter >> 32) + k0, x1 = static_cast<std::uint32_t>(counter) + k1;
  const auto mix = [&](int by) __attribute__((always_inline)) {
    x0 += x1;
    x1 = ((x1 << by) | (x1 >> (32 - by))) ^ x0;
  };
  const auto four = [&](bool even, std::uint32_t add0, std::uint32_t add1) __attribute__((always_inline)) {
    mix(even ? 13 : 17);
    mix(even ? 15 : 29);
    mix(even ? 26 : 16);
    mix(even ? 6 : 24);
    x0 += add0;
    x1 += add1;
  };
  four(true, k1, k2 + 1);
  four(false, k2, k0 + 2);
  four(true, k0, k1 + 3);
  four(false, k1, k2 + 4);
  four(true, k2, k0 + 5);
  return static_cast<std::uint64_t>(x0) << 32 | x1;
}

/// Shifts bits. By as many bits as the type has, or more, or a negative number of them, everything is shifted out. To the right a signed
/// integer keeps its sign.
template <class T>
[[gnu::always_inline]] constexpr T shift_bits(bool left, T a, T b) {
  using natural = std::make_unsigned_t<T>;
  constexpr natural width = std::numeric_limits<natural>::digits;
  const bool is_inside = static_cast<natural>(b) < width;
  const natural by = is_inside ? static_cast<natural>(b) : natural(width - 1);
  if (left) return is_inside ? static_cast<T>(static_cast<natural>(a) << by) : T(0);
  const T shifted = static_cast<T>(a >> by);
  return is_inside || std::is_signed_v<T> ? shifted : T(0);
}

/// A negative exponent gives the reciprocal rounded towards 0, which only 1 and -1 have; 0 stays 0.
template <class T>
constexpr T power_of_integers(T base, T exponent) {
  using natural = std::make_unsigned_t<T>;
  if constexpr (std::is_signed_v<T>)
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
  } else if constexpr (Op == opcode::stop_gradient) {
    return x;
  } else if constexpr (Op == opcode::not_) {
    if constexpr (std::is_same_v<In, bool>) return !x;
    else return static_cast<Out>(~x);
  } else if constexpr (own_element<In>) {
    static_assert(
        requires { static_cast<Out>(-x); }, "gspmd: negate: the element type of your own has no -x; give it one");
    return static_cast<Out>(-x);
  } else if constexpr (is_complex_element<In>) {
    if constexpr (Op == opcode::negate) return -x;
    else if constexpr (Op == opcode::real) return x.re;
    else if constexpr (Op == opcode::imag) return x.im;
    else if constexpr (Op == opcode::conj) return {x.re, -x.im};
    else if constexpr (Op == opcode::abs) return std::hypot(x.re, x.im);
    else return {exponential(x.re) * sine_of<true>(x.im), exponential(x.re) * sine_of<false>(x.im)};
  } else if constexpr (Op == opcode::sign) {
    if constexpr (std::is_unsigned_v<In>) return x > In{} ? In(1) : x;
    const In negative_or_same = x < In{} ? In(-1) : x;  // 0, -0.0 and NaN stay what they are
    return x > In{} ? In(1) : negative_or_same;
  } else if constexpr (Op == opcode::relu) {
    return x <= In{} ? In{} : x;  // a NaN stays
  } else if constexpr (std::is_integral_v<In>) {
    using natural = std::make_unsigned_t<In>;
    const In negated = static_cast<In>(natural{} - static_cast<natural>(x));
    if constexpr (Op == opcode::negate) return negated;
    else if constexpr (std::is_unsigned_v<In>) return x;
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
    else if constexpr (Op == opcode::sine) return sine_of<false>(x);
    else if constexpr (Op == opcode::cosine) return sine_of<true>(x);
    else if constexpr (Op == opcode::floor) return round_down(x);
    else if constexpr (Op == opcode::expm1) return exponential_less_one(x);
    else if constexpr (Op == opcode::log1p) return logarithm_of_one_more(x);
    else if constexpr (Op == opcode::erf) return error_function(x);
    else if constexpr (Op == opcode::erf_inv) return inverse_error_function(x);
    else if constexpr (Op == opcode::cbrt) return std::cbrt(x);
    else return round_up(x);
  }
}

/// An operator of a type of the user's own.
template <opcode Op, class T>
[[gnu::always_inline]] inline T apply_own(const T& a, const T& b) {
  if constexpr (Op == opcode::add) {
    return static_cast<T>(a + b);
  } else if constexpr (Op == opcode::multiply) {
    return static_cast<T>(a * b);
  } else if constexpr (Op == opcode::subtract) {
    static_assert(
        requires { static_cast<T>(a - b); }, "gspmd: subtract: the element type of your own has no a - b; give it one");
    return static_cast<T>(a - b);
  } else {
    static_assert(
        requires { static_cast<T>(a / b); }, "gspmd: divide: the element type of your own has no a / b; give it one");
    return static_cast<T>(a / b);
  }
}

/// An operator of two operands.
template <opcode Op, class Out, class In>
[[gnu::always_inline]] inline Out apply(In a, In b) {
  static_assert(is_binary(Op) && is_defined(Op, dtype_of<In>()));
  if constexpr (own_element<In>) return apply_own<Op>(a, b);
  else if constexpr (Op == opcode::compare_eq) return a == b;
  else if constexpr (Op == opcode::compare_ne) return a != b;
  else if constexpr (Op == opcode::complex) return {a, b};
  else if constexpr (Op == opcode::compare_lt) return a < b;
  else if constexpr (Op == opcode::compare_le) return a <= b;
  else if constexpr (Op == opcode::compare_gt) return a > b;
  else if constexpr (Op == opcode::compare_ge) return a >= b;
  else if constexpr (Op == opcode::maximum)
    return ((a != a) | (a > b)) ? a : b;  // a NaN on either side wins; so does `b` of two zeros
  else if constexpr (Op == opcode::minimum) return ((a != a) | (a < b)) ? a : b;
  else if constexpr (Op == opcode::xor_) return static_cast<Out>(a ^ b);
  else if constexpr (Op == opcode::and_ || Op == opcode::or_) {
    if constexpr (std::is_same_v<In, bool>) return static_cast<bool>(Op == opcode::and_ ? a & b : a | b);
    else return static_cast<Out>(Op == opcode::and_ ? a & b : a | b);
  } else if constexpr (std::is_integral_v<In>) {
    using natural = std::make_unsigned_t<In>;
    if constexpr (Op == opcode::divide) return divide_integers(a, b);
    else if constexpr (Op == opcode::threefry2x32) return threefry2x32(a, b);
    else if constexpr (Op == opcode::remainder) return remainder_of_integers(a, b);
    else if constexpr (Op == opcode::shift_left || Op == opcode::shift_right) return shift_bits(Op == opcode::shift_left, a, b);
    else if constexpr (Op == opcode::power) return power_of_integers(a, b);
    else if constexpr (Op == opcode::add) return static_cast<Out>(static_cast<natural>(a) + static_cast<natural>(b));
    else if constexpr (Op == opcode::subtract) return static_cast<Out>(static_cast<natural>(a) - static_cast<natural>(b));
    else return static_cast<Out>(static_cast<natural>(a) * static_cast<natural>(b));
  } else {
    if constexpr (Op == opcode::add) return a + b;
    else if constexpr (Op == opcode::subtract) return a - b;
    else if constexpr (Op == opcode::multiply) return a * b;
    else if constexpr (Op == opcode::divide) return a / b;
    else if constexpr (Op == opcode::remainder) return std::fmod(a, b);
    else if constexpr (Op == opcode::atan2) return std::atan2(a, b);
    else return std::pow(a, b);
  }
}

/// The choice between two values. GCC moves what only one of them needs into a branch and does not vectorise the loop. `no-trapping-math`
/// (GSPMD_LOOP_FUNCTION) keeps it from that where nothing is computed for either value; where something is, x > 0 ? 2x : y takes 34 times
/// as long with SSE2, and NPB's EP 7 times with AVX-512, so floats are chosen by masks. The mask is a choice here, and not 0 - which as in
/// `choose`, since that takes 1.4 times as long where little else is computed (of `exponential` it is the other way round, 1.12).
template <opcode Op, class Out, class In>
[[gnu::always_inline]] inline Out apply(bool which, In on_true, In on_false) {
  static_assert(Op == opcode::select);
#if !defined(__clang__)
  if constexpr (std::is_floating_point_v<In>) {
    using bits = typename float_format<In>::bits;
    return of_mask(which ? static_cast<bits>(~bits{0}) : bits{0}, on_true, on_false);
  }
#endif
  return which ? on_true : on_false;
}

/// The member of a map that takes elements of type T; null where the user's function does not.
template <class T>
constexpr auto function_for(const map_function& f) {
  if constexpr (own_element<T>) {
    return [call = f.of_own[element_type<T>::number]](const T* arguments) __attribute__((always_inline)) {
      T result{};
      call(arguments, &result);
      return result;
    };
  } else {
    return std::get<map_element<T>>(f.of);
  }
}

/// True when the user's function takes elements of `type`, or of the type that those are computed as.
constexpr bool accepts(const map_function& f, dtype type) {
  if (is_own(type)) return f.of_own[own_number(type)] != nullptr;
  type = computed_as(type);
  bool result = f.rows[static_cast<int>(type)] != nullptr;
  with_computing_type(type, [&]<class T>(T) { result = result || function_for<T>(f) != nullptr; });
  return result;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
