// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/support/target.hpp"

/// Square root, exponential, logarithm and their kin without branches and calls, so that a loop that contains one is
/// still vectorised. The C library's functions would keep the whole fused loop scalar.
///
/// The square root is the correctly rounded one of the hardware. The others are within about 2 ulp.
///
/// Vectors of 64 bits are chosen between from SSE4.2 on. Before, GCC's loops of doubles are scalar, and the C library's
/// exponential and logarithm take a third of the time of those here; two thirds of Clang's.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

// The builtins, because std:: has functions around them, and GCC inlines no plain function into one of other options
// (see fused_loop.hpp).
template <class T>
[[gnu::always_inline]] inline T absolute(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_fabsf(x);
  else return __builtin_fabs(x);
}
template <class T>
[[gnu::always_inline]] inline T with_sign_of(T size, T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_copysignf(size, x);
  else return __builtin_copysign(size, x);
}
template <class T>
[[gnu::always_inline]] inline T round_down(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_floorf(x);
  else return __builtin_floor(x);
}
template <class T>
[[gnu::always_inline]] inline T round_up(T x) {
  if constexpr (std::is_same_v<T, float>) return __builtin_ceilf(x);
  else return __builtin_ceil(x);
}

template <class T>
[[gnu::always_inline]] inline T square_root(T x) {
#if defined(__clang__)
  // sqrt may set errno, which keeps it scalar; these become the instruction.
#if __has_builtin(__builtin_elementwise_sqrt)
  return __builtin_elementwise_sqrt(x);
#elif defined(__SSE2__)
  if constexpr (std::is_same_v<T, float>) {
    typedef float lane __attribute__((vector_size(16)));
    return __builtin_ia32_sqrtss(lane{x})[0];
  } else {
    typedef double lane __attribute__((vector_size(16)));
    return __builtin_ia32_sqrtsd(lane{x})[0];
  }
#else
  if constexpr (std::is_same_v<T, float>) return __builtin_sqrtf(x);
  else return __builtin_sqrt(x);
#endif
#else
  // GCC tests every argument by !isless(x, 0) before it drops the call that may set errno. The same test here makes
  // that one always true, and the loop is vectorised. The replacement must be one that GCC does not fold: a NaN.
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  if constexpr (std::is_same_v<T, float>) return __builtin_sqrtf(__builtin_isless(x, T(0)) ? nan : x);
  else return __builtin_sqrt(__builtin_isless(x, T(0)) ? nan : x);
#endif
}

/// Whether `choose` of so wide numbers is vector code.
#if defined(__SSE2__) && !defined(__SSE4_2__)
template <class T>
inline constexpr bool is_chosen_in_vectors = !std::is_same_v<T, double>;
#else
template <class T>
inline constexpr bool is_chosen_in_vectors = true;
#endif

template <class T>
struct float_format;
template <>
struct float_format<float> {
  using bits = std::uint32_t;
  static constexpr int mantissa = 23, bias = 127, subnormal_shift = 25;
  static constexpr float exp_least = -104.0f, exp_most = 89.0f, tanh_most = 20.0f;
  static constexpr float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;  // high times any exponent is exact
};
template <>
struct float_format<double> {
  using bits = std::uint64_t;
  static constexpr int mantissa = 52, bias = 1023, subnormal_shift = 54;
  static constexpr double exp_least = -746.0, exp_most = 710.0, tanh_most = 44.0;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
};

/// The bits of a where those of the mask are set, and of b elsewhere.
template <class T, class Bits>
[[gnu::always_inline]] constexpr T of_mask(Bits mask, T a, T b) {
  return __builtin_bit_cast(T, (__builtin_bit_cast(Bits, a) & mask) | (__builtin_bit_cast(Bits, b) & ~mask));
}

/// which ? a : b. GCC makes branches of selects before it vectorises, and propagates a constant side through all
/// following code. It makes no branches of masks.
template <class T>
[[gnu::always_inline]] constexpr T choose(bool which, T a, T b) {
#if defined(__clang__)
  return which ? a : b;
#else
  using bits = typename float_format<T>::bits;
  return of_mask(static_cast<bits>(bits{0} - static_cast<bits>(which)), a, b);
#endif
}

/// c0 + x * (c1 + x * (c2 + ...))
template <class T, class... Rest>
[[gnu::always_inline]] inline T polynomial(T x, double c, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0) return static_cast<T>(c);
#if defined(__FMA__) && !defined(__clang__)
  else if constexpr (std::is_same_v<T, float>) return __builtin_fmaf(x, polynomial(x, rest...), static_cast<T>(c));
  else return __builtin_fma(x, polynomial(x, rest...), static_cast<T>(c));
#else
  else return static_cast<T>(c) + x * polynomial(x, rest...);
#endif
}

/// 2^k for an exponent of a normal number.
template <class T>
[[gnu::always_inline]] inline T power_of_two(std::int32_t k) {
  using bits = typename float_format<T>::bits;
  return __builtin_bit_cast(T, static_cast<bits>(static_cast<bits>(k + float_format<T>::bias) << float_format<T>::mantissa));
}

/// x = k ln 2 + r with |r| <= ln 2 / 2, and e^r - 1 from its series. `x` is finite and of moderate size.
template <class T>
struct reduced_exponential {
  std::int32_t k;
  T less_one;

  [[gnu::always_inline]] explicit reduced_exponential(T x) {
    using format = float_format<T>;
    k = static_cast<std::int32_t>(x * static_cast<T>(0x1.71547652b82fep+0) + with_sign_of(T(0.5), x));
    const T n = static_cast<T>(k);
    const T r = (x - n * format::ln2_high) - n * format::ln2_low;
    T tail;
    if constexpr (std::is_same_v<T, float>) tail = polynomial(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040);
    else
      tail = polynomial(r, 1. / 2, 1. / 6, 1. / 24, 1. / 120, 1. / 720, 1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800,
                        1. / 39916800, 1. / 479001600, 1. / 6227020800.);
    less_one = r + r * r * tail;
  }
};

template <class T>
[[gnu::always_inline]] inline T exponential(T x) {
  if constexpr (!is_chosen_in_vectors<T>) return __builtin_exp(x);
  using format = float_format<T>;
  const bool is_some = x >= format::exp_least;
  T clamped = choose(is_some, x, format::exp_least);  // a NaN as well: its conversion to int is undefined
  clamped = choose(clamped > format::exp_most, format::exp_most, clamped);
  const reduced_exponential<T> e(clamped);
  const std::int32_t half = e.k >> 1;  // in two steps, because 2^k itself may be no normal number
  // A product that is too small for a float takes a processor 150 cycles, one with 0 takes it none: masked scores are
  // such numbers.
  const T rest = choose(is_some, power_of_two<T>(e.k - half), T(0));
  const T y = (T(1) + e.less_one) * power_of_two<T>(half) * rest;
  return choose(x != x, x, y);
}

template <class T>
[[gnu::always_inline]] inline T logarithm(T x) {
  if constexpr (!is_chosen_in_vectors<T>) return __builtin_log(x);
  using format = float_format<T>;
  using bits = typename format::bits;
  constexpr T least_normal = std::numeric_limits<T>::min();
  constexpr T infinity = std::numeric_limits<T>::infinity();
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  const bool is_subnormal = x < least_normal;
  const T scaled = choose(is_subnormal, x * static_cast<T>(std::uint64_t{1} << format::subnormal_shift), x);
  // x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2)
  const bits one = __builtin_bit_cast(bits, T(1));
  const bits root = __builtin_bit_cast(bits, static_cast<T>(0x1.6a09e667f3bcdp-1));
  const bits shifted = static_cast<bits>(__builtin_bit_cast(bits, scaled) + (one - root));
  std::int32_t k = static_cast<std::int32_t>(shifted >> format::mantissa) - format::bias;
  k -= static_cast<std::int32_t>(is_subnormal) * format::subnormal_shift;
  const bits fraction = shifted & ((bits{1} << format::mantissa) - 1);
  const T f = __builtin_bit_cast(T, static_cast<bits>(fraction + root)) - T(1);
  // log(1 + f) = f - f^2/2 + s (f^2/2 + 2/3 s^2 + 2/5 s^4 + ...) with s = f / (2 + f)
  const T s = f / (T(2) + f);
  const T z = s * s;
  T series;
  if constexpr (std::is_same_v<T, float>) series = polynomial(z, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11);
  else series = polynomial(z, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23);
  const T n = static_cast<T>(k);
  const T half_square = T(0.5) * f * f;
  T y = n * format::ln2_high - ((half_square - (s * (half_square + z * series) + n * format::ln2_low)) - f);
  y = choose(x == infinity, x, y);
  y = choose(x == T(0), -infinity, y);
  return choose(x >= T(0), y, nan);
}

template <class T>
[[gnu::always_inline]] inline T hyperbolic_tangent(T x) {
  const T size = absolute(x);
  const T twice = choose(size < float_format<T>::tanh_most / 2, size + size, float_format<T>::tanh_most);
  const reduced_exponential<T> e(twice);
  const T scale = power_of_two<T>(e.k);
  const T less_one = scale * e.less_one + (scale - T(1));  // e^2|x| - 1, exact where it is small
  const T y = with_sign_of(less_one / (less_one + T(2)), x);
  return choose(x != x, x, y);
}

/// e^x - 1, with the digits of small results.
template <class T>
[[gnu::always_inline]] inline T exponential_less_one(T x) {
  using format = float_format<T>;
  constexpr T least = static_cast<T>(-60);  // e^x - 1 rounds to -1
  T clamped = choose(x >= least, x, least);
  clamped = choose(clamped > format::exp_most, format::exp_most, clamped);
  const reduced_exponential<T> e(clamped);
  const std::int32_t most = e.k > 1 ? 1 : 0;  // 2^k itself may be no number
  const T scale = power_of_two<T>(e.k - most), one = choose(most == 1, T(0.5), T(1));
  const T y = (scale * e.less_one + (scale - one)) * choose(most == 1, T(2), T(1));
  return choose((x != x) | (x == T(0)), x, y);
}

/// log(1 + x), with the digits of small results: what 1 + x loses of x, the logarithm loses in proportion.
template <class T>
[[gnu::always_inline]] inline T logarithm_of_one_more(T x) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const T more = T(1) + x, taken = more - T(1);
  const bool is_tiny = taken == T(0);
  const T y = logarithm(more) * (x / choose(is_tiny, T(1), taken));
  return choose(is_tiny | (x == infinity), x, y);
}

/// 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits.
template <class T>
[[gnu::always_inline]] inline T logistic_function(T x) {
  const T e = exponential(-absolute(x));
  return choose(x < T(0), e, T(1)) / (T(1) + e);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
