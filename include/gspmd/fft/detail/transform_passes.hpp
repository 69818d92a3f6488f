// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/fft/detail/line_lanes.hpp"
#include "gspmd/fft/detail/line_transform.hpp"

/// The passes of a fast Fourier transform in Stockham's order, which needs no digit reversal. Each pass processes one
/// factor r of n and writes from one buffer to another (Van Loan, Computational Frameworks for the FFT, 1992, 1.7 and
/// 2.3).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns e^(-2 pi i k / n), 0 <= k < n.
template <class T>
complex_pair<T> root_of_unity(std::int64_t k, std::int64_t n) {
  const double turn = 2 * 3.14159265358979323846 * static_cast<double>(2 * k > n ? k - n : k) / static_cast<double>(n);
  return {static_cast<T>(std::cos(turn)), static_cast<T>(-std::sin(turn))};
}
/// Computes all n roots. If n is a multiple of 8, sines and cosines are computed for an eighth of the circle only;
/// symmetry gives the rest.
template <class T>
void roots_of_unity(std::int64_t n, complex_pair<T>* to) {
  const std::int64_t made = n % 8 == 0 ? n / 8 + 1 : n % 4 == 0 ? n / 4 : n % 2 == 0 ? n / 2 : n;
  for (std::int64_t k = 0; k < made; ++k) to[k] = root_of_unity<T>(k, n);
  for (std::int64_t k = made; k < n; ++k)
    to[k] = 2 * k >= n   ? complex_pair<T>{-to[k - n / 2].re, -to[k - n / 2].im}
            : 4 * k >= n ? complex_pair<T>{to[k - n / 4].im, -to[k - n / 4].re}
                         : complex_pair<T>{-to[n / 4 - k].im, -to[n / 4 - k].re};
}

template <class T>
struct transform_passes {
  std::int64_t n = 1;
  const complex_pair<T>* roots = nullptr;  // of n

  /// Transforms the n elements in `from`. Returns `from` or `to`, whichever holds the result.
  template <class V>
  complex_pair<V>* operator()(complex_pair<V>* from, complex_pair<V>* to) const {
    std::int64_t left = n, stride = 1;
    const auto all_of = [&]<int R>(std::integral_constant<int, R>) {
      for (; left % R == 0; left /= R, stride *= R) {
        pass<R>(from, to, left / R, stride);
        std::swap(from, to);
      }
    };
    all_of(std::integral_constant<int, 4>{});
    all_of(std::integral_constant<int, 2>{});
    all_of(std::integral_constant<int, 3>{});
    all_of(std::integral_constant<int, 5>{});
    all_of(std::integral_constant<int, 7>{});
    all_of(std::integral_constant<int, 11>{});
    all_of(std::integral_constant<int, 13>{});
    static_assert(line_transform::largest_radix == 13);
    return from;
  }

 private:
  /// Transforms the groups of elements p, p + m, p + 2 m, ... `stride` transforms are interleaved.
  template <int R, class V>
  void pass(const complex_pair<V>* __restrict from, complex_pair<V>* __restrict to, std::int64_t m, std::int64_t stride) const {
    complex_pair<T> own[R];  // the roots of R
    for (int k = 0; k < R; ++k) own[k] = roots[n / R * k];
    for (std::int64_t q = 0; q < stride; ++q) {
      complex_pair<V> z[R];
#pragma GCC unroll 13
      for (int k = 0; k < R; ++k) z[k] = from[q + stride * m * k];
      butterfly(z, own);
#pragma GCC unroll 13
      for (int k = 0; k < R; ++k) to[q + stride * k] = z[k];
    }
    for (std::int64_t p = 1; p < m; ++p) {
      complex_pair<T> turn[R];
#pragma GCC unroll 13
      for (int k = 1; k < R; ++k) turn[k] = roots[k * p * stride];
      const complex_pair<V>* const in = from + stride * p;
      complex_pair<V>* const out = to + stride * R * p;
      for (std::int64_t q = 0; q < stride; ++q) {
        complex_pair<V> z[R];
#pragma GCC unroll 13
        for (int k = 0; k < R; ++k) z[k] = in[q + stride * m * k];
        butterfly(z, own);
        out[q] = z[0];
#pragma GCC unroll 13
        for (int k = 1; k < R; ++k) out[q + stride * k] = z[k] * turn[k];
      }
    }
  }

  /// Transforms R elements. `own` has the roots of R.
  template <class V, int R>
  [[gnu::always_inline]] static void butterfly(complex_pair<V> (&z)[R], const complex_pair<T> (&own)[R]) {
    using pairs = complex_pair<V>;
    if constexpr (R == 2) {
      const pairs a = z[0], b = z[1];
      z[0] = a + b;
      z[1] = a - b;
    } else if constexpr (R == 4) {
      const pairs a = z[0] + z[2], b = z[0] - z[2], c = z[1] + z[3], d = z[1] - z[3];
      z[0] = a + c;
      z[1] = {b.re + d.im, b.im - d.re};
      z[2] = a - c;
      z[3] = {b.re - d.im, b.im + d.re};
    } else {
      // Elements j and R - j are multiplied by equal cosines and opposite sines.
      constexpr int half = R / 2;
      const pairs first = z[0];
      pairs sums[half + 1], differences[half + 1];
#pragma GCC unroll 6
      for (int j = 1; j <= half; ++j) {
        sums[j] = z[j] + z[R - j];
        differences[j] = z[j] - z[R - j];
        z[0] = z[0] + sums[j];
      }
#pragma GCC unroll 6
      for (int k = 1; k <= half; ++k) {
        pairs even = first, odd{};
#pragma GCC unroll 6
        for (int j = 1; j <= half; ++j) {
          const complex_pair<T> root = own[j * k % R];
          even = {even.re + sums[j].re * root.re, even.im + sums[j].im * root.re};
          odd = {odd.re - differences[j].im * root.im, odd.im + differences[j].re * root.im};
        }
        z[k] = even + odd;
        z[R - k] = even - odd;
      }
    }
  }
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
