// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gspmd/detail/kernels/fused_dynamic.hpp"

/// A second definition of the elementwise operators, simple and slow: one value at a time, of any type.
namespace slow_operators {

using namespace gspmd;
using namespace gspmd::detail;

__extension__ typedef __int128 wide;

// One value of any type.
struct value {
  dtype type = dtype::f32;
  double real = 0;           // of floats
  std::int64_t integer = 0;  // of other types
};

/// Rounds to the nearest number with `fraction` bits and these exponents, ties to even. It scales, because speed does
/// not matter here.
inline double rounded(double x, int fraction, int least_exponent, double beyond) {
  if (!std::isfinite(x) || x == 0) return x;
  const int exponent = std::max(std::ilogb(x), least_exponent);
  const double unit = std::ldexp(1.0, exponent - fraction), y = std::nearbyint(x / unit) * unit;
  return std::fabs(y) >= beyond ? std::copysign(std::numeric_limits<double>::infinity(), x) : std::copysign(y, x);
}
inline double as_type(dtype type, double x) {
  if (type == dtype::bf16) return rounded(x, 7, -126, 0x1p128);
  if (type == dtype::f16) return rounded(x, 10, -14, 65536);
  return type == dtype::f32 ? static_cast<double>(static_cast<float>(x)) : x;
}
/// Facts of integer types: the number of bits, and whether the first bit is the sign.
inline int width_of(dtype type) { return static_cast<int>(8 * bytes_of(type)); }
inline bool is_signed_type(dtype type) {
  return type == dtype::s8 || type == dtype::s16 || type == dtype::s32 || type == dtype::s64;
}
inline value floating(dtype type, double x) { return {type, as_type(type, x), 0}; }
inline value wrapped(dtype type, wide x) {
  const int unused = 64 - width_of(type);
  const auto low = static_cast<std::uint64_t>(x) << unused;
  return {type, 0, is_signed_type(type) ? static_cast<std::int64_t>(low) >> unused : static_cast<std::int64_t>(low >> unused)};
}
/// Returns the integer itself. u64 integers are stored as their bits.
inline wide integer_of(const value& x) {
  return x.type == dtype::u64 ? static_cast<wide>(static_cast<std::uint64_t>(x.integer)) : static_cast<wide>(x.integer);
}
inline wide most_of(dtype type) { return (wide{1} << (width_of(type) - (is_signed_type(type) ? 1 : 0))) - 1; }
inline wide least_of(dtype type) { return is_signed_type(type) ? -most_of(type) - 1 : 0; }
inline value truth(bool x) { return {dtype::pred, 0, x ? 1 : 0}; }

inline value naive_convert(dtype to, const value& x) {
  if (is_floating(to))
    return is_floating(x.type) ? floating(to, x.real)
           : to == dtype::f32  ? value{to, static_cast<double>(static_cast<float>(integer_of(x))), 0}
                               : floating(to, static_cast<double>(integer_of(x)));
  if (to == dtype::pred) return truth(is_floating(x.type) ? x.real != 0 : x.integer != 0);
  if (!is_floating(x.type)) return wrapped(to, integer_of(x));
  if (std::isnan(x.real)) return {to, 0, 0};
  if (x.real >= 0x1p100) return wrapped(to, most_of(to));
  if (x.real <= -0x1p100) return wrapped(to, least_of(to));
  return wrapped(to, std::max(std::min(static_cast<wide>(x.real), most_of(to)), least_of(to)));
}

/// Computes the inverse by bisection.
inline double naive_erf_inv(double y) {
  if (!(std::fabs(y) < 1)) return std::fabs(y) == 1 ? std::copysign(std::numeric_limits<double>::infinity(), y) : std::nan("");
  const double size = std::fabs(y);
  if (size < 1e-9) return y * 0.88622692545275801365;  // half the square root of pi
  double low = 0, high = 7;
  while (std::nextafter(low, high) < high) {
    const double middle = (low + high) / 2;
    const bool is_below = size > 0.5 ? std::erfc(middle) > 1 - size : std::erf(middle) < size;
    (is_below ? low : high) = middle;
  }
  return std::copysign(high, y);
}
/// Fails the test: this file does not have the value of the operator.
[[noreturn]] inline void refuse(const operator_code& code) {
  throw std::logic_error(std::string("the oracle has no value for ") + name_of(code));
}
inline value naive_unary(const scalar_code& code, dtype to, const value& x) {
  if (code == scalar_code_of<cast_op>) return naive_convert(to, x);
  const dtype t = x.type;
  if (!is_floating(t)) {
    const wide i = integer_of(x);
    switch (code.id) {
      case operator_id<stop_gradient_op>: return x;
      case operator_id<abs_op>: return wrapped(t, i < 0 ? -i : i);
      case operator_id<negative_op>: return wrapped(t, -i);
      case operator_id<sign_op>: return wrapped(t, i > 0 ? 1 : i < 0 ? -1 : 0);
      case operator_id<relu_op>: return wrapped(t, i > 0 ? i : 0);
      case operator_id<not_op>: return t == dtype::pred ? truth(i == 0) : wrapped(t, -i - 1);
      default: refuse(code);
    }
  }
  const double r = x.real;
  switch (code.id) {
    case operator_id<abs_op>: return floating(t, std::signbit(r) ? -r : r);
    case operator_id<negative_op>: return floating(t, -r);
    case operator_id<sign_op>: return floating(t, r > 0 ? 1 : r < 0 ? -1 : r);
    case operator_id<relu_op>: return floating(t, std::isnan(r) ? r : r > 0 ? r : 0);
    case operator_id<exp_op>: return floating(t, std::exp(r));
    case operator_id<log_op>: return floating(t, std::log(r));
    case operator_id<sqrt_op>: return t == dtype::f32 ? floating(t, std::sqrt(static_cast<float>(r))) : floating(t, std::sqrt(r));
    case operator_id<rsqrt_op>:
      return t == dtype::f32 ? floating(t, 1.0f / std::sqrt(static_cast<float>(r))) : floating(t, 1 / std::sqrt(r));
    case operator_id<tanh_op>: return floating(t, std::tanh(r));
    case operator_id<sigmoid_op>: return floating(t, static_cast<double>(1 / (1 + std::exp(-static_cast<long double>(r)))));
    case operator_id<sin_op>: return floating(t, std::sin(r));
    case operator_id<cos_op>: return floating(t, std::cos(r));
    case operator_id<floor_op>: return floating(t, std::floor(r));
    case operator_id<expm1_op>: return floating(t, std::expm1(r));
    case operator_id<log1p_op>: return floating(t, std::log1p(r));
    case operator_id<erf_op>: return floating(t, std::erf(r));
    case operator_id<erf_inv_op>: return floating(t, naive_erf_inv(r));
    case operator_id<cbrt_op>: return floating(t, std::cbrt(r));
    case operator_id<stop_gradient_op>: return x;
    case operator_id<ceil_op>: return floating(t, std::ceil(r));
    default: refuse(code);
  }
}

inline value naive_binary(const scalar_code& code, const value& a, const value& b) {
  const dtype t = a.type;
  const bool is_real = is_floating(t);
  const bool nan = is_real && (std::isnan(a.real) || std::isnan(b.real));
  const bool less = is_real ? a.real < b.real : integer_of(a) < integer_of(b);
  const bool equal = is_real ? a.real == b.real : a.integer == b.integer;
  const wide i = integer_of(a), j = integer_of(b);
  const bool is_shifted_out = j < 0 || j >= width_of(t);
  switch (code.id) {
    case operator_id<compare_eq_op>: return truth(equal);
    case operator_id<compare_ne_op>: return truth(!equal);
    case operator_id<compare_lt_op>: return truth(less);
    case operator_id<compare_le_op>: return truth(less || equal);
    case operator_id<compare_gt_op>: return truth(!nan && !less && !equal);
    case operator_id<compare_ge_op>: return truth(!nan && !less);
    case operator_id<max_op>:
      return nan ? floating(t, std::nan("")) : less || equal ? b : a;  // for 0.0 and -0.0 the second operand
    case operator_id<min_op>: return nan ? floating(t, std::nan("")) : less ? a : b;
    case operator_id<and_op>: return t == dtype::pred ? truth(i != 0 && j != 0) : value{t, 0, a.integer & b.integer};
    case operator_id<or_op>: return t == dtype::pred ? truth(i != 0 || j != 0) : value{t, 0, a.integer | b.integer};
    case operator_id<add_op>: return is_real ? floating(t, a.real + b.real) : wrapped(t, i + j);
    case operator_id<subtract_op>: return is_real ? floating(t, a.real - b.real) : wrapped(t, i - j);
    case operator_id<multiply_op>:
      return is_real ? floating(t, a.real * b.real)
                     : wrapped(t, static_cast<wide>(static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(j)));
    case operator_id<xor_op>: return t == dtype::pred ? truth((i != 0) != (j != 0)) : value{t, 0, a.integer ^ b.integer};
    case operator_id<left_shift_op>: return wrapped(t, is_shifted_out ? 0 : i << static_cast<int>(j));
    case operator_id<right_shift_op>: return wrapped(t, is_shifted_out ? (i < 0 ? -1 : 0) : i >> static_cast<int>(j));
    case operator_id<fmod_op>: return is_real ? floating(t, std::fmod(a.real, b.real)) : wrapped(t, j == 0 ? i : i % j);
    case operator_id<threefry2x32_op>: {
      std::uint32_t x[2] = {static_cast<std::uint32_t>(static_cast<std::uint64_t>(a.integer) >> 32),
                            static_cast<std::uint32_t>(a.integer)};
      std::uint32_t k[3] = {static_cast<std::uint32_t>(static_cast<std::uint64_t>(b.integer) >> 32),
                            static_cast<std::uint32_t>(b.integer), 0};
      k[2] = 0x1bd11bda ^ k[0] ^ k[1];
      for (unsigned n = 0; n <= 20; ++n) {
        if (n % 4 == 0) {
          x[0] += k[n / 4 % 3];
          x[1] += k[(n / 4 + 1) % 3] + n / 4;
        }
        constexpr int by[] = {13, 15, 26, 6, 17, 29, 16, 24};
        if (n < 20) x[1] = std::rotl(x[1], by[n % 8]) ^ (x[0] += x[1]);
      }
      return {t, 0, static_cast<std::int64_t>(std::uint64_t{x[0]} << 32 | x[1])};
    }
    case operator_id<atan2_op>: return floating(t, std::atan2(a.real, b.real));
    case operator_id<divide_op>: return is_real ? floating(t, a.real / b.real) : j == 0 ? wrapped(t, -1) : wrapped(t, i / j);
    case operator_id<pow_op>: break;
    default: refuse(code);
  }
  if (is_real) return floating(t, std::pow(a.real, b.real));
  if (j < 0) return wrapped(t, i == 1 ? 1 : i == -1 ? (j % 2 == 0 ? 1 : -1) : 0);
  // Computes x^j mod 2^64 by recursion over the exponent.
  struct power {
    static std::uint64_t of(std::uint64_t x, std::uint64_t n) {
      return n == 0 ? 1 : n % 2 != 0 ? x * of(x, n - 1) : of(x * x, n / 2);
    }
  };
  return wrapped(t, static_cast<wide>(power::of(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j))));
}

// ---- memory of any type ---------------------------------------------------------------------------------------------
/// Reads a pred as a byte: unwritten memory can hold any byte, and loading a byte above 1 as a bool would be undefined.
inline value read(dtype type, const std::byte* from, std::int64_t i) {
  value v{type, 0, 0};
  if (type == dtype::pred) {
    v.integer = static_cast<std::int64_t>(from[i]);
    return v;
  }
  with_real_type(type, [&]<class T>(T x) {
    std::memcpy(&x, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    if (is_floating(type)) v.real = static_cast<double>(x);
    else v.integer = static_cast<std::int64_t>(x);
  });
  return v;
}
inline void write(const value& v, std::byte* to, std::int64_t i) {
  with_real_type(v.type, [&]<class T>(T x) {
    x = is_floating(v.type) ? static_cast<T>(v.real) : static_cast<T>(v.integer);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &x, sizeof(T));
  });
}

inline bool same(const value& got, const value& wanted, int ulps) {
  if (!is_floating(got.type)) return got.integer == wanted.integer;
  if (std::isnan(wanted.real)) return std::isnan(got.real);
  if (got.real == wanted.real) return got.real != 0 || std::signbit(got.real) == std::signbit(wanted.real);
  if (ulps == 0 || std::isinf(wanted.real) || std::isinf(got.real)) return false;
  const double size = std::max(std::fabs(wanted.real), got.type == dtype::f32 ? 1.2e-38 : 2.3e-308);
  const double ulp = std::ldexp(1.0, std::ilogb(size) - (got.type == dtype::f32 ? 23 : 52));
  return std::fabs(got.real - wanted.real) <= ulps * std::max(ulp, got.type == dtype::f32 ? 1.5e-45 : 5e-324);
}

inline std::vector<value> samples(dtype type, std::mt19937& random) {
  std::vector<value> v;
  if (is_floating(type)) {
    const bool f = type == dtype::f32;
    const double inf = std::numeric_limits<double>::infinity();
    for (const double x : {0.0,
                           0.25,
                           0.5,
                           1.0,
                           1.5,
                           2.0,
                           3.0,
                           1e-3,
                           1e-20,
                           17.0,
                           19.5,
                           80.0,
                           88.7,
                           89.5,
                           103.0,
                           104.0,
                           200.0,
                           709.7,
                           710.5,
                           745.0,
                           746.5,
                           1e9,
                           2147483647.0,
                           2147483648.0,
                           4e9,
                           9223372036854775807.0,
                           1e30,
                           f ? 3.4e38 : 1.7e308,
                           f ? 1.2e-38 : 2.3e-308,
                           f ? 1e-45 : 5e-324,
                           inf,
                           std::nan("")}) {
      v.push_back(floating(type, x));
      v.push_back(floating(type, -x));
    }
    for (const double scale : {1.0, 5.0, 40.0, 1e5, 1e-4})
      for (int k = 0; k < 40; ++k) v.push_back(floating(type, std::uniform_real_distribution<>(-scale, scale)(random)));
  } else if (type == dtype::pred) {
    v = {truth(false), truth(true)};
  } else {
    const std::int64_t most =
        type == dtype::u64 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(most_of(type));
    for (const std::int64_t x :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{-1}, std::int64_t{-2}, std::int64_t{7},
          std::int64_t{-13}, std::int64_t{31}, std::int64_t{46341}, std::int64_t{16777217}, most, most - 1, -most, -most - 1})
      v.push_back(wrapped(type, x));
    for (int k = 0; k < 20; ++k) v.push_back(wrapped(type, std::uniform_int_distribution<std::int64_t>(-most, most)(random)));
  }
  return v;
}

/// The types for which kernels compute.
constexpr dtype all_types[] = {dtype::f32, dtype::f64, dtype::s32, dtype::s64, dtype::pred, dtype::u32, dtype::u64};

inline std::vector<std::byte> pack(const std::vector<value>& values) {
  std::vector<std::byte> bytes(values.size() * 8 + 8);
  for (std::size_t i = 0; i < values.size(); ++i) write(values[i], bytes.data(), static_cast<std::int64_t>(i));
  return bytes;
}

}  // namespace slow_operators
