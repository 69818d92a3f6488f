// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/kernels/transpose_block.hpp"
#include "gspmd/detail/support/target.hpp"

/// Several lines of complex elements in vectors: element k of all lines is a vector of real parts and a vector of
/// imaginary parts.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Complex numbers whose parts are numbers or vectors.
template <class V>
struct complex_pair {
  V re, im;

  friend complex_pair operator+(const complex_pair& a, const complex_pair& b) { return {a.re + b.re, a.im + b.im}; }
  friend complex_pair operator-(const complex_pair& a, const complex_pair& b) { return {a.re - b.re, a.im - b.im}; }
  template <class W>
  friend complex_pair operator*(const complex_pair& a, const complex_pair<W>& b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};
template <class V, class T>
void set_lane(complex_pair<V>& z, int lane, complex_pair<T> x) {
  if constexpr (std::is_same_v<V, T>) z = x;
  else z.re[lane] = x.re, z.im[lane] = x.im;
}
template <class T, class V>
complex_pair<T> get_lane(const complex_pair<V>& z, int lane) {
  if constexpr (std::is_same_v<V, T>) return z;
  else return {z.re[lane], z.im[lane]};
}

/// Up to `width` lines, one in each lane of V. If `Swaps`, load and store exchange real and imaginary parts, which
/// turns a transform into its inverse.
template <bool Swaps, class T, class V>
struct line_lanes {
  static constexpr int width = static_cast<int>(sizeof(V) / sizeof(T));
  using pairs = complex_pair<V>;

  complex_pair<T>* at[width];
  int count = 0;
  std::int64_t stride = 1;  // between elements of a line

  static line_lanes of(complex_pair<T>* first, std::int64_t count, std::int64_t between, std::int64_t stride) {
    line_lanes l;
    l.count = static_cast<int>(std::min<std::int64_t>(count, width));
    for (int k = 0; k < l.count; ++k) l.at[k] = first + k * between;
    l.stride = stride;
    return l;
  }
  /// Lines inside one line, from element `first` on. The distances are in elements of that line.
  static line_lanes within(const line_lanes& x, int line, std::int64_t first, std::int64_t count, std::int64_t between,
                           std::int64_t stride) {
    return of(x.at[line] + first * x.stride, count, between * x.stride, stride * x.stride);
  }

  void load(std::int64_t n, pairs* to) const {
    if (is_row()) {
      for (std::int64_t k = 0; k < n; ++k) {
        const auto* const from = reinterpret_cast<const T*>(at[0] + k * stride);
        to[k] = placed(apart(load_simd(from), load_simd(from + width)));
      }
      return;
    }
    std::int64_t k = 0;
    if (is_block())
      for (; k + step <= n; k += step) {
        V rows[width];
#pragma GCC unroll 16
        for (int l = 0; l < width; ++l) rows[l] = load_simd(reinterpret_cast<const T*>(at[l] + k));
        transpose(rows);
#pragma GCC unroll 16
        for (int e = 0; e < step; ++e) to[k + e] = placed({rows[2 * e], rows[2 * e + 1]});
      }
    for (; k < n; ++k) {
      pairs z{};
      for (int l = 0; l < count; ++l) {
        complex_pair<T> one;
        std::memcpy(&one, at[l] + k * stride, sizeof one);  // the memory has another element type
        set_lane(z, l, one);
      }
      to[k] = placed(z);
    }
  }
  void store(std::int64_t n, const pairs* from, T scale) const {
    const auto scaled = [&](const pairs& z) { return placed({z.re * scale, z.im * scale}); };
    if (is_row()) {
      for (std::int64_t k = 0; k < n; ++k) {
        auto* const to = reinterpret_cast<T*>(at[0] + k * stride);
        const pairs z = together(scaled(from[k]));
        store_simd(to, z.re);
        store_simd(to + width, z.im);
      }
      return;
    }
    std::int64_t k = 0;
    if (is_block())
      for (; k + step <= n; k += step) {
        V rows[width];
#pragma GCC unroll 16
        for (int e = 0; e < step; ++e) {
          const pairs z = scaled(from[k + e]);
          rows[2 * e] = z.re;
          rows[2 * e + 1] = z.im;
        }
        transpose(rows);
#pragma GCC unroll 16
        for (int l = 0; l < width; ++l) store_simd(reinterpret_cast<T*>(at[l] + k), rows[l]);
      }
    for (; k < n; ++k) {
      const pairs z = scaled(from[k]);
      for (int l = 0; l < count; ++l) {
        const complex_pair<T> one = get_lane<T>(z, l);
        std::memcpy(at[l] + k * stride, &one, sizeof one);
      }
    }
  }

 private:
  static constexpr int step = width > 1 ? width / 2 : 1;

  /// Returns true if the lines are adjacent: element k of all lines is contiguous.
  [[nodiscard]] bool is_row() const {
    if (width == 1 || count < width) return false;
    for (int l = 1; l < width; ++l)
      if (at[l] != at[0] + l) return false;
    return true;
  }
  /// Returns true if each line is contiguous.
  [[nodiscard]] bool is_block() const { return width > 1 && count == width && stride == 1; }

  static pairs placed(const pairs& z) { return Swaps ? pairs{z.im, z.re} : z; }
  /// Separates the real and imaginary parts of consecutive complex numbers; together() is the inverse.
  static pairs apart(const V& a, const V& b) {
    if constexpr (width == 1) return {a, b};
    else
      return [&]<int... L>(std::integer_sequence<int, L...>) {
        return pairs{__builtin_shufflevector(a, b, 2 * L...), __builtin_shufflevector(a, b, (2 * L + 1)...)};
      }(std::make_integer_sequence<int, width>{});
  }
  static pairs together(const pairs& z) {
    if constexpr (width == 1) return z;
    else
      return [&]<int... L>(std::integer_sequence<int, L...>) {
        return pairs{__builtin_shufflevector(z.re, z.im, (L / 2 + L % 2 * width)...),
                     __builtin_shufflevector(z.re, z.im, (width / 2 + L / 2 + L % 2 * width)...)};
      }(std::make_integer_sequence<int, width>{});
  }
  static void transpose(V (&rows)[width]) {
    if constexpr (width > 1) transpose_stage<1>(rows);
  }
  static V load_simd(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  static void store_simd(T* to, const V& v) { std::memcpy(to, &v, sizeof v); }
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
