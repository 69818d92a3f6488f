// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/opcode.hpp"
#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/target.hpp"

/// Functions of one element, with the semantics of StableHLO. The elementwise operators call them (ir/elementwise/).
///
/// All results are defined for all operands. The functions select values and do not branch, because compilers do not
/// vectorise a loop with a branch.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns true if one kernel converts between the two types. All other conversions use several kernels
/// (loop_group::converted).
constexpr bool is_converted_directly(dtype from, dtype to) {
  if (is_complex(from)) return is_complex(to);
  if (is_narrow(from)) return to == computed_as(from);
  if (!is_narrow(to)) return true;
  return is_floating(to) ? is_floating(from) : from == computed_as(to);
}

/// Converts an element. A float outside of the range of an integer type becomes the nearest integer, and NaN becomes 0.
/// Integers wrap around. A conversion to pred returns x != 0.
template <class To, class From>
[[gnu::always_inline]] constexpr To convert_element(From x) {
  if constexpr (own_element<To> || own_element<From>) {
    static_assert(std::is_constructible_v<To, From>,
                  "gspmd: cast: static_cast does not convert between these types, of which at least one is your own; give "
                  "your type a constructor or conversion operator");
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
    return choose(x, To(1), To(0));  // the plain conversion prevents GCC from vectorising
  } else {
    return static_cast<To>(x);
  }
}

/// Divides integers. x / 0 has all bits set, so it is -1 for signed integers. The least integer divided by -1 is
/// itself.
template <class T>
[[gnu::always_inline]] constexpr T divide_integers(T a, T b) {
  const bool is_zero = b == 0;
  bool overflows = false;
  if constexpr (std::is_signed_v<T>) overflows = (a == std::numeric_limits<T>::min()) & (b == T(-1));
  const T quotient = static_cast<T>(a / ((is_zero | overflows) ? T(1) : b));
  return is_zero ? static_cast<T>(-1) : quotient;
}

/// Returns x % y, with the sign of x. x % 0 is x, and the least integer % -1 is 0.
template <class T>
[[gnu::always_inline]] constexpr T remainder_of_integers(T a, T b) {
  bool is_one = b == 0;  // a % 1 is 0
  if constexpr (std::is_signed_v<T>) is_one = is_one | (b == T(-1));
  const T left = static_cast<T>(a % (is_one ? T(1) : b));
  return b == 0 ? a : left;
}

/// Computes Threefry-2x32 with 20 rounds, a block cipher that turns counters into random numbers (Salmon, Moraes, Dror
/// and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011). Word 0 is the upper half of counter, key and result.
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

/// Shifts bits. If the number of bits is negative, or at least the width of the type, all bits are shifted out. A shift
/// to the right keeps the sign of a signed integer.
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

/// Returns a power. For a negative exponent it is the reciprocal rounded towards 0: 0 unless the base is 1 or -1. 0
/// stays 0.
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

/// Returns the member of a map for elements of type T, or null if the user's function does not take them.
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

/// Returns true if the user's function takes elements of `type`, or of the type in which they are computed.
constexpr bool accepts(const map_function& f, dtype type) {
  if (is_own(type)) return f.of_own[own_number(type)] != nullptr;
  type = computed_as(type);
  bool result = f.rows[static_cast<int>(type)] != nullptr;
  with_computing_type(type, [&]<class T>(T) { result = result || function_for<T>(f) != nullptr; });
  return result;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
