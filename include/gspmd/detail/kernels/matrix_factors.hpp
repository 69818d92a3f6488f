// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "gspmd/detail/ir/matrix_functions.hpp"
#include "gspmd/detail/kernels/matrix_elements.hpp"
#include "gspmd/detail/support/target.hpp"

/// Factors of matrices, and systems with them, row-major and in place: halves of halves, so that nearly all is matrix products (Elmroth,
/// Gustavson, Jonsson and Kågström: Recursive blocked algorithms, 2004; with pivots Toledo 1997), down to blocks that fit a few registers.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr std::int64_t matrix_leaf =
    16;  // rows; a system of 64 with 64 columns takes 0.48 of LAPACK's time, with 8 0.45, with 32 0.52

/// The lower triangle of c -= a a^H, and some of what is above it.
template <class T>
void subtract_square(std::int64_t n, std::int64_t k, const T* a, std::int64_t lda, T* c, std::int64_t ldc) {
  if (n <= 4 * matrix_leaf) return subtract_product(false, true, n, n, k, a, lda, a, lda, c, ldc);
  const std::int64_t half = n / 2;
  subtract_square(half, k, a, lda, c, ldc);
  subtract_product(false, true, n - half, half, k, a + half * lda, lda, a, lda, c + half * ldc, ldc);
  subtract_square(n - half, k, a + half * lda, lda, c + half * ldc + half, ldc);
}

/// x = op(a)^-1 x: a is n x n, x has k columns.
template <class T>
void solve_triangle(matrix_way t, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda, T* x, std::int64_t ldx) {
  if (n > matrix_leaf) {
    const std::int64_t half = n / 2, rest = n - half;
    const T* const corner = t.lower ? a + half * lda : a + half;
    const T* const last = a + half * lda + half;
    T* const below = x + half * ldx;
    if (t.forwards()) {
      solve_triangle(t, half, k, a, lda, x, ldx);
      subtract_product(t.transposed, false, rest, k, half, corner, lda, x, ldx, below, ldx);
      solve_triangle(t, rest, k, last, lda, below, ldx);
    } else {
      solve_triangle(t, rest, k, last, lda, below, ldx);
      subtract_product(t.transposed, false, half, k, rest, corner, lda, below, ldx, x, ldx);
      solve_triangle(t, half, k, a, lda, x, ldx);
    }
    return;
  }
  for (std::int64_t step = 0; step < n; ++step) {
    const std::int64_t i = t.forwards() ? step : n - 1 - step;
    T* const row = x + i * ldx;
    for (std::int64_t known = 0; known < step; ++known) {
      const std::int64_t j = t.forwards() ? known : n - 1 - known;
      const T factor = t.transposed ? a[j * lda + i] : a[i * lda + j];
      for (std::int64_t c = 0; c < k; ++c) row[c] = row[c] - factor * x[j * ldx + c];
    }
    if (t.unit) continue;
    const T pivot = a[i * lda + i];
    for (std::int64_t c = 0; c < k; ++c) row[c] = row[c] / pivot;
  }
}
/// x = x (l^H)^-1: l is n x n, lower, with a real diagonal; x has m rows.
template <class T>
void solve_from_right(std::int64_t m, std::int64_t n, const T* l, std::int64_t ldl, T* x, std::int64_t ldx) {
  if (n > matrix_leaf) {
    const std::int64_t half = n / 2;
    solve_from_right(m, half, l, ldl, x, ldx);
    subtract_product(false, true, m, n - half, half, x, ldx, l + half * ldl, ldl, x + half, ldx);
    solve_from_right(m, n - half, l + half * ldl + half, ldl, x + half, ldx);
    return;
  }
  T columns[matrix_leaf][matrix_leaf];  // of l, one after the other, so that rows of x are vectors
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = j; i < n; ++i) columns[j][i] = conjugate_of(l[i * ldl + j]);
  for (std::int64_t r = 0; r < m; ++r) {
    T* const row = x + r * ldx;
    for (std::int64_t j = 0; j < n; ++j) {
      row[j] = divided(row[j], real_of(columns[j][j]));
      for (std::int64_t i = j + 1; i < n; ++i) row[i] = row[i] - row[j] * columns[j][i];
    }
  }
}

/// a = l with a = l l^H, of the lower triangle; nothing above it is read, and something is written there. False: a is not positive definite.
template <class T>
bool factor_cholesky(std::int64_t n, T* a, std::int64_t lda) {
  if (n > matrix_leaf) {
    const std::int64_t half = n / 2;
    T *const below = a + half * lda, *const last = below + half;
    if (!factor_cholesky(half, a, lda)) return false;
    solve_from_right(n - half, half, a, lda, below, lda);
    subtract_square(n - half, half, below, lda, last, lda);
    return factor_cholesky(n - half, last, lda);
  }
  T column[matrix_leaf];
  for (std::int64_t j = 0; j < n; ++j) {
    const part_t<T> square = real_of(a[j * lda + j]);
    if (!(square > 0)) return false;  // or no number
    const part_t<T> root = std::sqrt(square);
    a[j * lda + j] = T(root);
    for (std::int64_t i = j + 1; i < n; ++i) {
      column[i] = conjugate_of(a[i * lda + j] = divided(a[i * lda + j], root));
      const T own = a[i * lda + j];
      for (std::int64_t p = j + 1; p <= i; ++p) a[i * lda + p] = a[i * lda + p] - own * column[p];
    }
  }
  return true;
}

/// The factors of a matrix with its rows exchanged, whose right-hand sides have theirs exchanged too.
template <class T>
struct pivoting {
  T* a;
  std::int64_t n, lda;
  T* x;
  std::int64_t k, ldx;
  std::int32_t* order = nullptr;  // the numbers of the rows, which are exchanged too
  std::int64_t columns = n;       // at most n: a panel has less
  bool is_odd = false;            // how often rows were exchanged

  /// Columns from `begin` to `end`, rows from `begin` on: l below the diagonal, whose own is ones, and u. False: a pivot is 0, and so is all below it.
  bool factor(std::int64_t begin, std::int64_t end) {
    if (end - begin > matrix_leaf) {
      const std::int64_t half = begin + (end - begin) / 2;
      const bool has_pivots = factor(begin, half);
      solve_triangle(matrix_way{true, false, true}, half - begin, end - half, at(begin, begin), lda, at(begin, half), lda);
      subtract_product(false, false, n - half, end - half, half - begin, at(half, begin), lda, at(begin, half), lda,
                       at(half, half), lda);
      return factor(half, end) && has_pivots;
    }
    bool has_pivots = true;
    for (std::int64_t j = begin; j < end; ++j) {
      const std::int64_t pivot = largest_of_column(j);
      if (pivot != j) exchange(j, pivot);
      if (*at(j, j) == T(0)) {
        has_pivots = false;
        continue;
      }
      for (std::int64_t i = j + 1; i < n; ++i) {
        const T factor = *at(i, j) = *at(i, j) / *at(j, j);
        for (std::int64_t c = j + 1; c < end; ++c) *at(i, c) = *at(i, c) - factor * *at(j, c);
      }
    }
    return has_pivots;
  }
  /// x = a^-1 x.
  [[nodiscard]] bool solve() {
    if (!factor(0, n)) return false;
    solve_triangle(matrix_way{true, false, true}, n, k, a, lda, x, ldx);
    solve_triangle(matrix_way{false, false, false}, n, k, a, lda, x, ldx);
    return true;
  }

 private:
  [[nodiscard]] T* at(std::int64_t i, std::int64_t j) const { return a + i * lda + j; }
  /// From the diagonal on. A NaN is the largest, so that whatever depends on it is NaN.
  [[nodiscard]] std::int64_t largest_of_column(std::int64_t j) const {
    std::int64_t largest = j;
    auto size = pivot_size(*at(j, j));
    for (std::int64_t i = j + 1; i < n && size == size; ++i) {
      const auto other = pivot_size(*at(i, j));
      if (other <= size) continue;
      largest = i;
      size = other;
    }
    return largest;
  }
  void exchange(std::int64_t i, std::int64_t j) {
    is_odd = !is_odd;
    for (std::int64_t c = 0; c < columns; ++c) std::swap(*at(i, c), *at(j, c));
    for (std::int64_t c = 0; c < k; ++c) std::swap(x[i * ldx + c], x[j * ldx + c]);
    if (order != nullptr) std::swap(order[i], order[j]);
  }
};

template <class T>
void fill_rows(std::int64_t rows, std::int64_t columns, part_t<T> number, T* x, std::int64_t ldx) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) x[i * ldx + j] = T(number);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
