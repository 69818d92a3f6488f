// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/matrix_elements.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// Matrix factorisations and solvers, row-major and in place. They halve recursively, so that nearly all work is matrix
/// products (Elmroth, Gustavson, Jonsson and Kågström: Recursive blocked algorithms, 2004; with pivots Toledo 1997).
/// Blocks of at most matrix_leaf rows are computed directly.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline constexpr std::int64_t matrix_leaf =
    16;  // rows; a system of 64 with 64 columns takes 0.48 of LAPACK's time, with 8 0.45, with 32 0.52

/// Computes x = op(a)^-1 x. a is n x n; x has k columns.
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
/// The factors of a matrix whose rows are exchanged. The rows of the right-hand sides x are exchanged too.
template <class T>
struct pivoting {
  T* a;
  std::int64_t n, lda;
  T* x;
  std::int64_t k, ldx;
  std::int32_t* order = nullptr;  // row numbers, exchanged like the rows
  std::int64_t cols = n;          // at most n; smaller for a panel
  bool is_odd = false;            // parity of the number of exchanges

  /// Factors columns [begin, end) of the rows from `begin` on. Stores l below the diagonal (its diagonal is ones) and
  /// u. Returns false if a pivot is 0, which means that all elements below it are 0 too.
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
  /// Computes x = a^-1 x.
  [[nodiscard]] bool solve() {
    if (!factor(0, n)) return false;
    solve_triangle(matrix_way{true, false, true}, n, k, a, lda, x, ldx);
    solve_triangle(matrix_way{false, false, false}, n, k, a, lda, x, ldx);
    return true;
  }

 private:
  [[nodiscard]] T* at(std::int64_t i, std::int64_t j) const { return a + i * lda + j; }
  /// Returns the row of the pivot, from the diagonal on. NaN counts as the largest, so that all results that depend on
  /// it are NaN.
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
    for (std::int64_t c = 0; c < cols; ++c) std::swap(*at(i, c), *at(j, c));
    for (std::int64_t c = 0; c < k; ++c) std::swap(x[i * ldx + c], x[j * ldx + c]);
    if (order != nullptr) std::swap(order[i], order[j]);
  }
};

template <class T>
void fill_rows(std::int64_t rows, std::int64_t cols, part_t<T> number, T* x, std::int64_t ldx) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) x[i * ldx + j] = T(number);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
