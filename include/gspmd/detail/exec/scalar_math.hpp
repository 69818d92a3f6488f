// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

/// Square root, exponential, logarithm and their kin without branches and calls, so that a loop that contains one is still
/// vectorised. The C library's functions would keep the whole fused loop scalar.
///
/// The square root is the correctly rounded one of the hardware. The others are within about 2 ulp.
namespace gspmd::detail {

/// Keeps the compiler from fusing the product `x` with a sum that follows: whether two operators end in one loop must not
/// show in the bits. Clang fuses only within one expression of the source.
template <class T>
[[gnu::always_inline]] inline T rounded(T x) {
#if defined(__GNUC__) && !defined(__clang__)
  return __builtin_assoc_barrier(x);
#else
  return x;
#endif
}

template <class T>
[[gnu::always_inline]] inline T square_root(T x) {
#if defined(__clang__)
  // std::sqrt may set errno, which keeps it scalar; these become the instruction.
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
  return std::sqrt(x);
#endif
#else
  // GCC tests every argument by !isless(x, 0) before it drops the call that may set errno. The same test here makes that
  // one always true, and the loop is vectorised. The replacement must be one that GCC does not fold: a NaN.
  return std::sqrt(__builtin_isless(x, T(0)) ? std::numeric_limits<T>::quiet_NaN() : x);
#endif
}

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

/// c0 + x * (c1 + x * (c2 + ...))
template <class T, class... Rest>
[[gnu::always_inline]] inline T polynomial(T x, double c, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0) return static_cast<T>(c);
  else return static_cast<T>(c) + x * polynomial(x, rest...);
}

/// 2^k for an exponent of a normal number.
template <class T>
[[gnu::always_inline]] inline T power_of_two(std::int32_t k) {
  using bits = typename float_format<T>::bits;
  return std::bit_cast<T>(static_cast<bits>(static_cast<bits>(k + float_format<T>::bias) << float_format<T>::mantissa));
}

/// x = k ln 2 + r with |r| <= ln 2 / 2, and e^r - 1 from its series. `x` is finite and of moderate size.
template <class T>
struct reduced_exponential {
  std::int32_t k;
  T less_one;

  [[gnu::always_inline]] explicit reduced_exponential(T x) {
    using format = float_format<T>;
    k = static_cast<std::int32_t>(x * static_cast<T>(0x1.71547652b82fep+0) + (x < 0 ? T(-0.5) : T(0.5)));
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
  using format = float_format<T>;
  T clamped = x >= format::exp_least ? x : format::exp_least;  // a NaN as well: its conversion to int would be undefined
  clamped = clamped > format::exp_most ? format::exp_most : clamped;
  const reduced_exponential<T> e(clamped);
  const std::int32_t half = e.k >> 1;  // in two steps, because 2^k itself may be no normal number
  const T y = rounded((T(1) + e.less_one) * power_of_two<T>(half) * power_of_two<T>(e.k - half));
  return x != x ? x : y;
}

template <class T>
[[gnu::always_inline]] inline T logarithm(T x) {
  using format = float_format<T>;
  using bits = typename format::bits;
  using limits = std::numeric_limits<T>;
  const bool is_subnormal = x < limits::min();
  const T scaled = is_subnormal ? x * static_cast<T>(std::uint64_t{1} << format::subnormal_shift) : x;
  // x = 2^k (1 + f) with 1 + f from sqrt(1/2) to sqrt(2)
  const bits one = std::bit_cast<bits>(T(1));
  const bits root = std::bit_cast<bits>(static_cast<T>(0x1.6a09e667f3bcdp-1));
  const bits shifted = static_cast<bits>(std::bit_cast<bits>(scaled) + (one - root));
  std::int32_t k = static_cast<std::int32_t>(shifted >> format::mantissa) - format::bias;
  k = is_subnormal ? k - format::subnormal_shift : k;
  const bits fraction = shifted & ((bits{1} << format::mantissa) - 1);
  const T f = std::bit_cast<T>(static_cast<bits>(fraction + root)) - T(1);
  // log(1 + f) = f - f^2/2 + s (f^2/2 + 2/3 s^2 + 2/5 s^4 + ...) with s = f / (2 + f)
  const T s = f / (T(2) + f);
  const T z = s * s;
  T series;
  if constexpr (std::is_same_v<T, float>) series = polynomial(z, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11);
  else
    series = polynomial(z, 2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23);
  const T n = static_cast<T>(k);
  const T half_square = T(0.5) * f * f;
  T y = n * format::ln2_high - ((half_square - (s * (half_square + z * series) + n * format::ln2_low)) - f);
  y = x == limits::infinity() ? x : y;
  y = x == T(0) ? -limits::infinity() : y;
  return x >= T(0) ? y : limits::quiet_NaN();
}

template <class T>
[[gnu::always_inline]] inline T hyperbolic_tangent(T x) {
  const T size = std::fabs(x);
  T twice = size < float_format<T>::tanh_most / 2 ? size + size : float_format<T>::tanh_most;
  const reduced_exponential<T> e(twice);
  const T scale = power_of_two<T>(e.k);
  const T less_one = scale * e.less_one + (scale - T(1));  // e^2|x| - 1, exact where it is small
  const T y = std::copysign(less_one / (less_one + T(2)), x);
  return x != x ? x : y;
}

/// 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits.
template <class T>
[[gnu::always_inline]] inline T logistic_function(T x) {
  const T e = exponential(-std::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

}  // namespace gspmd::detail
