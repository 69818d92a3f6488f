// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/matrix_elements.hpp"

/// Row-major Cholesky factors, computed by recursive halving (see matrix_factors.hpp). Each element of a row depends on
/// the elements before it. So blocks that are not halved are vectorised over several rows, or over several small
/// matrices.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr std::int64_t cholesky_leaf = 16;  // rows

/// One element from each of several rows or matrices: a vector, or a vector of real parts and one of imaginary parts.
template <class T>
struct element_lanes {
  using vector = typename short_vector<part_t<T>, simd_bytes>::type;
  using type = std::conditional_t<is_complex_element<T>, complex_number<vector>, vector>;
  static constexpr std::int64_t count = simd_lanes<part_t<T>>;

  [[gnu::always_inline]] static void set(type& x, std::int64_t lane, T to) {
    if constexpr (is_complex_element<T>) x.re[lane] = to.re, x.im[lane] = to.im;
    else x[lane] = to;
  }
  [[gnu::always_inline]] static T get(const type& x, std::int64_t lane) {
    if constexpr (is_complex_element<T>) return {x.re[lane], x.im[lane]};
    else return x[lane];
  }
  [[gnu::always_inline]] static void scale(type& x, const auto& by) {
    if constexpr (is_complex_element<T>) x.re = x.re * by, x.im = x.im * by;
    else x = x * by;
  }
  /// Computes x -= a conj(b).
  [[gnu::always_inline]] static void subtract(type& x, const type& a, const auto& b) {
    if constexpr (is_complex_element<T>) {
      x.re = x.re - a.re * b.re - a.im * b.im;
      x.im = x.im - a.im * b.re + a.re * b.im;
    } else {
      x = x - a * b;
    }
  }
};

/// Returns (a + conj(b)) / 2. Halves before adding, because the sum of large numbers would overflow. Halving is exact
/// except for subnormal numbers.
template <class T>
[[gnu::always_inline]] inline T mean_with_conjugate(T a, T b) {
  return scaled(a, part_t<T>(0.5)) + scaled(conjugate_of(b), part_t<T>(0.5));
}

/// Computes the lower triangle of l = (a + a^H) / 2, tile by tile, so that columns are read by whole cache lines.
template <class T>
void take_hermitian_part(std::int64_t n, const T* a, std::int64_t lda, T* l, std::int64_t ldl) {
  constexpr std::int64_t side = 16;
  for (std::int64_t top = 0; top < n; top += side)
    for (std::int64_t left = 0; left <= top; left += side)
      for (std::int64_t i = top; i < std::min(top + side, n); ++i)
        for (std::int64_t j = left; j < std::min(left + side, i + 1); ++j)
          l[i * ldl + j] = mean_with_conjugate(a[i * lda + j], a[j * lda + i]);
}

/// Computes the lower triangle of c -= a a^H. Also writes some elements above the diagonal.
template <class T>
void subtract_square(std::int64_t n, std::int64_t k, const T* a, std::int64_t lda, T* c, std::int64_t ldc) {
  if (n <= 4 * cholesky_leaf) return subtract_product(false, true, n, n, k, a, lda, a, lda, c, ldc);
  const std::int64_t half = n / 2;
  subtract_square(half, k, a, lda, c, ldc);
  subtract_product(false, true, n - half, half, k, a + half * lda, lda, a, lda, c + half * ldc, ldc);
  subtract_square(n - half, k, a + half * lda, lda, c + half * ldc + half, ldc);
}

/// Computes x = x (l^H)^-1. l is an n x n lower triangle with a real diagonal; x has m rows.
template <class T>
void solve_from_right(std::int64_t m, std::int64_t n, const T* l, std::int64_t ldl, T* x, std::int64_t ldx) {
  if (n > cholesky_leaf) {
    const std::int64_t half = n / 2;
    solve_from_right(m, half, l, ldl, x, ldx);
    subtract_product(false, true, m, n - half, half, x, ldx, l + half * ldl, ldl, x + half, ldx);
    solve_from_right(m, n - half, l + half * ldl + half, ldl, x + half, ldx);
    return;
  }
  using lanes = element_lanes<T>;
  part_t<T> inverses[cholesky_leaf];
  for (std::int64_t j = 0; j < n; ++j) inverses[j] = 1 / real_of(l[j * ldl + j]);
  typename lanes::type cols[cholesky_leaf]{};
  for (std::int64_t first = 0; first < m; first += lanes::count) {
    const std::int64_t rows = std::min(lanes::count, m - first);
    T* const block = x + first * ldx;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) lanes::set(cols[j], r, block[r * ldx + j]);
    for (std::int64_t j = 0; j < n; ++j) {
      auto column = cols[j];
      for (std::int64_t p = 0; p < j; ++p) lanes::subtract(column, cols[p], l[j * ldl + p]);
      lanes::scale(column, inverses[j]);
      cols[j] = column;
    }
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) block[r * ldx + j] = lanes::get(cols[j], r);
  }
}

/// Replaces the lower triangle of a by l with a = l l^H. Does not read elements above the diagonal, but may overwrite
/// them. Returns false if a is not positive definite.
template <class T>
bool factor_cholesky(std::int64_t n, T* a, std::int64_t lda) {
  if (n > cholesky_leaf) {
    const std::int64_t half = n / 2;
    T *const below = a + half * lda, *const last = below + half;
    if (!factor_cholesky(half, a, lda)) return false;
    solve_from_right(n - half, half, a, lda, below, lda);
    subtract_square(n - half, half, below, lda, last, lda);
    return factor_cholesky(n - half, last, lda);
  }
  T column[cholesky_leaf];
  for (std::int64_t j = 0; j < n; ++j) {
    const part_t<T> square = real_of(a[j * lda + j]);
    if (!(square > 0)) return false;  // or NaN
    const part_t<T> root = std::sqrt(square), inverse = 1 / root;
    a[j * lda + j] = T(root);
    for (std::int64_t i = j + 1; i < n; ++i) {
      column[i] = conjugate_of(a[i * lda + j] = scaled(a[i * lda + j], inverse));
      const T own = a[i * lda + j];
      for (std::int64_t p = j + 1; p <= i; ++p) a[i * lda + p] = a[i * lda + p] - own * column[p];
    }
  }
  return true;
}

/// Factors matrices of at most cholesky_leaf rows, one in each lane of a vector. Each result is the one of
/// run_cholesky.
template <class T>
struct small_cholesky {
  using lanes = element_lanes<T>;
  std::int64_t n, lda, ldl;
  const T* a[lanes::count] = {};
  T* l[lanes::count] = {};
  std::int64_t count = 0;

  void add(const T* from, T* to) {
    a[count] = from;
    l[count++] = to;
    if (count == lanes::count) finish();
  }
  void finish() {
    if (count == 0) return;
    typename lanes::type x[cholesky_leaf][cholesky_leaf];
    if (count < lanes::count) std::fill_n(&x[0][0], cholesky_leaf * cholesky_leaf, typename lanes::type{});
    for (std::int64_t m = 0; m < count; ++m)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j) lanes::set(x[i][j], m, mean_with_conjugate(a[m][i * lda + j], a[m][j * lda + i]));
    part_t<T> factor[lanes::count];  // 1, or NaN for a matrix that is not positive definite
    std::fill_n(factor, lanes::count, part_t<T>(1));
    for (std::int64_t j = 0; j < n; ++j) {
      typename lanes::vector inverses{};
      for (std::int64_t i = j; i < n; ++i) {
        auto e = x[i][j];
        for (std::int64_t p = 0; p < j; ++p) lanes::subtract(e, x[i][p], x[j][p]);
        if (i == j) {
          for (std::int64_t m = 0; m < lanes::count; ++m) {
            const part_t<T> square = real_of(lanes::get(e, m));
            if (!(square > 0)) factor[m] = std::numeric_limits<part_t<T>>::quiet_NaN();  // or NaN
            const part_t<T> root = std::sqrt(square > 0 ? square : part_t<T>(1));
            lanes::set(e, m, T(root));
            inverses[m] = 1 / root;
          }
        } else {
          lanes::scale(e, inverses);
        }
        x[i][j] = e;
      }
    }
    for (std::int64_t m = 0; m < count; ++m)
      for (std::int64_t i = 0; i < n; ++i) {
        T* const row = l[m] + i * ldl;
        for (std::int64_t j = 0; j <= i; ++j) row[j] = scaled(lanes::get(x[i][j], m), factor[m]);
        for (std::int64_t j = i + 1; j < n; ++j) row[j] = T(0);
      }
    count = 0;
  }
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
