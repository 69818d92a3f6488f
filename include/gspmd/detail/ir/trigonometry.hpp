// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/support/target.hpp"

/// Sine and cosine of any number, within 3 ulp, without branches and calls, like scalar_math.hpp. If __FMA__ is not
/// defined, doubles use the C library. Targets without __FMA__ lack vector shifts with a count per lane, so the code
/// here would take twice as long.
namespace gspmd::detail {

/// The bits of 2 / pi after the binary point, most significant bits first.
inline constexpr std::uint32_t two_over_pi[] = {
    0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0,
    0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, 0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4,
    0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d,
    0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab};
/// Entry k holds 64 of these bits from bit 8 (k - 135) on. Bits before the first bit are zeros.
struct turn_bits {
  static constexpr int zeros = 135, count = 256 + 1 + 16;  // `count`: the number that the exponents of doubles require
  std::uint64_t from[count];

  constexpr turn_bits() : from{} {
    const auto byte = [](int b) -> std::uint64_t { return b < 0 ? 0 : two_over_pi[b / 4] >> (24 - b % 4 * 8) & 0xffU; };
    for (int i = 0; i < 8; ++i) from[0] = from[0] << 8 | byte(i - zeros);
    for (int k = 1; k < count; ++k) from[k] = from[k - 1] << 8 | byte(k + 7 - zeros);
  }
};
template <class = void>
inline constexpr turn_bits turns;
/// The 96 bits that a float requires, by its exponent e: from bit e - 152.
struct float_turn_bits {
  std::uint32_t word[3][256];

  constexpr explicit float_turn_bits(const turn_bits& all) : word{} {
    for (int e = 0; e < 256; ++e)
      for (int k = 0; k < 3; ++k) {
        const int bit = e - 152 + 32 * k + 8 * turn_bits::zeros;
        word[k][e] = static_cast<std::uint32_t>(all.from[bit / 8] << (bit % 8) >> 32);
      }
  }
};
template <class = void>
inline constexpr float_turn_bits float_turns{turns<>};

inline namespace GSPMD_TARGET {

/// |x| = (4 n + quadrant) pi/2 + rest with |rest| <= pi/4, after Payne and Hanek 1983. Computes only the bits of x *
/// 2/pi below 4. After the binary point it computes the bits that a number next to a multiple of pi/2 requires. `x` is
/// finite.
template <class T>
struct quarter_turns {
  using bits = typename float_format<T>::bits;
  bits quadrant;
  T rest;

  [[gnu::always_inline]] explicit quarter_turns(T x) {
    using wide = std::uint64_t;
    constexpr wide low = 0xffffffffU;
    constexpr int mantissa = float_format<T>::mantissa;
    constexpr bits one = bits{1} << mantissa;
    const bits size = __builtin_bit_cast(bits, x) & ~(bits{1} << (8 * sizeof(T) - 1)), exponent = size >> mantissa;
    const bits digits = (size & (one - 1)) | one;
    wide high, rest_bits;
    if constexpr (std::is_same_v<T, float>) {
      const auto& words = float_turns<>.word;
      const auto times = [&](int k) __attribute__((always_inline)) { return static_cast<wide>(digits) * words[k][exponent]; };
      high = (static_cast<wide>(digits * words[0][exponent]) << 32) + times(1) + (times(2) >> 32);
      rest_bits = 0;
    } else {
      const bits e = exponent + 3;
      const wide moved = digits << (e & 7U), m1 = moved >> 32, m0 = moved & low;
      const wide a = turns<>.from[e >> 3], b = turns<>.from[(e >> 3) + 8], c = turns<>.from[(e >> 3) + 16];
      const wide a1 = a & low, b0 = b >> 32, b1 = b & low, c0 = c >> 32, c1 = c & low;
      const wide p1 = m0 * a1, p2 = m1 * b0, p3 = m0 * b0, p4 = m1 * b1, p5 = m0 * b1, p6 = m1 * c0;
      const wide s0 = (p5 & low) + (p6 & low) + ((m0 * c0) >> 32) + ((m1 * c1) >> 32);
      const wide s1 = (p3 & low) + (p4 & low) + (p5 >> 32) + (p6 >> 32) + (s0 >> 32);
      const wide s2 = (p1 & low) + (p2 & low) + (p3 >> 32) + (p4 >> 32) + (s1 >> 32);
      const wide s3 = m0 * (a >> 32) + m1 * a1 + (p1 >> 32) + (p2 >> 32) + (s2 >> 32);
      high = s3 << 32 | (s2 & low);
      rest_bits = s1 << 32 | (s0 & low);
    }
    const wide nearest = (high + (wide{1} << 61)) >> 62;
    const wide left = high - (nearest << 62);
    // Near 2^52 adjacent doubles differ by 1, so the low bits of the double are an integer.
    const auto number = [](wide of_32_bits) __attribute__((always_inline)) {
      return __builtin_bit_cast(double, (wide{0x433} << 52) | of_32_bits) - 0x1p52;
    };
    double turns_left = (number((left >> 32) ^ (wide{1} << 31)) - 0x1p31) * 0x1p32 + number(left & low);
    if constexpr (std::is_same_v<T, double>)
      turns_left += (number(rest_bits >> 32) + number(rest_bits & low) * 0x1p-32) * 0x1p-32;
    const T sized = absolute(x);
    const bool is_in_first = sized < T(0.785);
    rest = choose(is_in_first, sized, static_cast<T>(turns_left * 0x1.921fb54442d18p-62));
    quadrant = static_cast<bits>(nearest) & (static_cast<bits>(is_in_first) - bits{1});
  }
};

/// Returns the sine or the cosine of x. The cosine is the sine of x plus a quarter turn.
template <bool IsCosine, class T>
[[gnu::always_inline]] inline T sine_of(T x) {
#if !defined(__FMA__)
  if constexpr (std::is_same_v<T, double>) return IsCosine ? __builtin_cos(x) : __builtin_sin(x);
#endif
  using bits = typename float_format<T>::bits;
  constexpr int top = 8 * sizeof(T) - 1;
  const quarter_turns<T> r(x);
  const T square = choose(absolute(r.rest) < T(1e-9), T(0), r.rest);  // squares of tiny numbers would be subnormal
  const T z = square * square;
  T sine, cosine;
  if constexpr (std::is_same_v<T, float>) {
    sine = polynomial(z, -1. / 6, 1. / 120, -1. / 5040, 1. / 362880);
    cosine = polynomial(z, 1., -1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800);
  } else {
    sine = polynomial(z, -1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800, 1. / 6227020800., -1. / 1307674368000.);
    cosine = polynomial(z, 1., -1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800, 1. / 479001600, -1. / 87178291200.,
                        1. / 20922789888000.);
  }
  const bits quadrant = r.quadrant + bits{IsCosine};
  const T size = choose((quadrant & 1U) != 0, cosine, r.rest + r.rest * z * sine);
  const bits sign = ((quadrant & 2U) << (top - 1)) ^ (IsCosine ? bits{0} : __builtin_bit_cast(bits, x) & (bits{1} << top));
  const T y = __builtin_bit_cast(T, __builtin_bit_cast(bits, size) ^ sign);
  return choose(absolute(x) <= std::numeric_limits<T>::max(), y, x - x);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
