// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {
namespace detail {

/// Returns the bits of the nearest bfloat16. A tie rounds to even. A NaN stays a NaN and becomes quiet.
// Has no branches, so that compilers vectorise loops of calls.
[[gnu::always_inline]] constexpr std::uint16_t bf16_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  const std::uint32_t is_nan = 0U - static_cast<std::uint32_t>((bits & 0x7fffffffU) > 0x7f800000U);
  return static_cast<std::uint16_t>((quiet & is_nan) | (rounded & ~is_nan));
}
[[gnu::always_inline]] constexpr float float_of_bf16(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

/// Returns the bits of the nearest IEEE half. A tie rounds to even. Values of 65520 or more become infinity.
[[gnu::always_inline]] constexpr std::uint16_t f16_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = (bits >> 16) & 0x8000U, size = bits & 0x7fffffffU;
  const auto mask = [](bool holds) { return 0U - static_cast<std::uint32_t>(holds); };
  const std::uint32_t normal = (size + 0xfffU + ((size >> 13) & 1U) - (112U << 23)) >> 13;
  // Next to 0.5, a float has the spacing of halves below 2^-14, so the addition rounds.
  const std::uint32_t bounded = size < 0x38800000U ? size : 0x38800000U;
  const float moved = __builtin_bit_cast(float, bounded) + 0.5F;
  const std::uint32_t tiny = __builtin_bit_cast(std::uint32_t, moved) - 0x3f000000U;
  const std::uint32_t is_tiny = mask(size < 0x38800000U), is_huge = mask(size >= 0x477ff000U), is_nan = mask(size > 0x7f800000U);
  std::uint32_t half = (tiny & is_tiny) | (normal & ~is_tiny);
  half = (0x7c00U & is_huge) | (half & ~is_huge);
  half = ((0x7e00U | ((size >> 13) & 0x3ffU)) & is_nan) | (half & ~is_nan);
  return static_cast<std::uint16_t>(half | sign);
}
[[gnu::always_inline]] constexpr float float_of_f16(std::uint16_t half) {
  const std::uint32_t bits = half, size = (bits & 0x7fffU) << 13;
  const float scaled = __builtin_bit_cast(float, size) * 0x1p112F;  // exact, also for subnormals
  const std::uint32_t is_special = 0U - static_cast<std::uint32_t>(size >= (0x7c00U << 13));
  const std::uint32_t plain = __builtin_bit_cast(std::uint32_t, scaled);
  const std::uint32_t special = size | 0x7f800000U;
  return __builtin_bit_cast(float, (special & is_special) | (plain & ~is_special) | ((bits & 0x8000U) << 16));
}

/// Returns a double as a float that rounds to the same narrower float. The last bit is set if lower bits were lost.
[[gnu::always_inline]] constexpr float rounded_to_odd(double x) {
  const float near = static_cast<float>(x);  // infinite if out of range, like each narrower float
  const auto bits = __builtin_bit_cast(std::uint32_t, near);
  const double back = static_cast<double>(near);
  const double size = x < 0 ? -x : x, back_size = back < 0 ? -back : back;
  const bool is_exact = !(size > back_size) && !(size < back_size);  // also for a NaN
  // Rounds towards 0, then sets the last bit.
  const std::uint32_t below = bits - static_cast<std::uint32_t>(back_size > size);
  return is_exact ? near : __builtin_bit_cast(float, below | 1U);
}

}  // namespace detail

/// A 16-bit float with the range of float: 8 bits of exponent, 7 bits of fraction (bfloat16). It has two bytes and is
/// trivially copyable. A number is rounded to the nearest bf16, and ties to even. It converts implicitly to float, so
/// arithmetic is float arithmetic.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;  // trivial, like a float
  [[gnu::always_inline]] constexpr explicit bf16(float x) : bits(detail::bf16_bits(x)) {}
  [[gnu::always_inline]] constexpr explicit bf16(double x) : bits(detail::bf16_bits(detail::rounded_to_odd(x))) {}
  template <class Integer>
    requires std::numeric_limits<Integer>::is_integer
  [[gnu::always_inline]] constexpr explicit bf16(Integer x) : bf16(static_cast<double>(x)) {}
  [[gnu::always_inline]] constexpr operator float() const {
    return detail::float_of_bf16(bits);
  }  // NOLINT(google-explicit-constructor)

  static constexpr bf16 of_bits(std::uint16_t bits) {
    bf16 x{};
    x.bits = bits;
    return x;
  }
};

/// The 16-bit float of IEEE (binary16): 5 bits of exponent, 10 bits of fraction. Otherwise like bf16.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  [[gnu::always_inline]] constexpr explicit f16(float x) : bits(detail::f16_bits(x)) {}
  [[gnu::always_inline]] constexpr explicit f16(double x) : bits(detail::f16_bits(detail::rounded_to_odd(x))) {}
  template <class Integer>
    requires std::numeric_limits<Integer>::is_integer
  [[gnu::always_inline]] constexpr explicit f16(Integer x) : f16(static_cast<double>(x)) {}
  [[gnu::always_inline]] constexpr operator float() const {
    return detail::float_of_f16(bits);
  }  // NOLINT(google-explicit-constructor)

  static constexpr f16 of_bits(std::uint16_t bits) {
    f16 x{};
    x.bits = bits;
    return x;
  }
};

namespace detail {

/// The members of numeric_limits for both narrow floats.
template <class T, std::uint16_t Most, std::uint16_t Infinity, std::uint16_t Nan, int Digits>
struct narrow_float_limits {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false, has_infinity = true,
                        has_quiet_NaN = true;
  static constexpr int digits = Digits, radix = 2;
  static constexpr T max() { return T::of_bits(Most); }
  static constexpr T lowest() { return T::of_bits(Most | 0x8000U); }
  static constexpr T infinity() { return T::of_bits(Infinity); }
  static constexpr T quiet_NaN() { return T::of_bits(Nan); }
};

}  // namespace detail
}  // namespace gspmd

template <>
class std::numeric_limits<gspmd::bf16> : public gspmd::detail::narrow_float_limits<gspmd::bf16, 0x7f7f, 0x7f80, 0x7fc0, 8> {};
template <>
class std::numeric_limits<gspmd::f16> : public gspmd::detail::narrow_float_limits<gspmd::f16, 0x7bff, 0x7c00, 0x7e00, 11> {};
