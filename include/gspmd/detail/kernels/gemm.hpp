// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/gemm_tile.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/kernels/small_product.hpp"
#include "gspmd/detail/support/target.hpp"

#if defined(GSPMD_HAS_CBLAS)
#include "gspmd/detail/kernels/gemm_cblas.hpp"
#elif __has_include(<Eigen/Core>)
#include "gspmd/detail/kernels/gemm_eigen.hpp"
#include "gspmd/detail/support/tuning.hpp"
#else
namespace gspmd::detail {
inline namespace GSPMD_TARGET {
inline bool fits_blas(std::int64_t) { return false; }
}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
#endif

/// The interface to matrix products. Uses CBLAS if CMake found one (GSPMD_HAS_CBLAS), otherwise Eigen.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

#if defined(GSPMD_HAS_CBLAS) || __has_include(<Eigen/Core>)
inline constexpr bool has_gemm_library = true;
#else
inline constexpr bool has_gemm_library = false;
#endif

/// Computes y[i * y_step] (+)= the sum over p of op(a)[i, p] * x[p * x_step]. op(a) is m x k. Long sums are computed in
/// parts, because libraries add one column after the other.
template <class T>
void gemv(bool transpose, std::int64_t m, std::int64_t k, const T* a, std::int64_t lda, const T* x, std::int64_t x_step, T* y,
          std::int64_t y_step, bool accumulate) {
  constexpr std::int64_t leaf = 4 * most_in_turn, piece = 2048;
  if (k <= leaf) {
    if constexpr (has_gemm_library) return library_gemv(transpose, m, k, a, lda, x, x_step, y, y_step, accumulate);
    else
      return gemm_tile(m, 1, k, a, transpose ? 1 : lda, transpose ? lda : 1, x, x_step, std::int64_t{1}, y, y_step, accumulate);
  }
  if (m > piece) {
    for (std::int64_t i = 0; i < m; i += piece)
      gemv(transpose, std::min(piece, m - i), k, a + i * (transpose ? 1 : lda), lda, x, x_step, y + i * y_step, y_step,
           accumulate);
    return;
  }
  const auto part = part_size(k, leaf);
  T sum[piece];
  for (std::int64_t p = 0; p < k; p += part) {
    const bool adds = accumulate || p > 0;
    gemv(transpose, m, std::min(part, k - p), a + p * (transpose ? lda : 1), lda, x + p * x_step, x_step, adds ? sum : y,
         adds ? 1 : y_step, false);
    for (std::int64_t i = 0; adds && i < m; ++i) y[i * y_step] += sum[i];
  }
}

/// gemm for own types: sums in the order of k, one row of c at a time.
template <own_element T>
void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda,
          const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool accumulate = false) {
  const std::int64_t a_row = transpose_a ? 1 : lda, a_col = transpose_a ? lda : 1;
  const std::int64_t b_row = transpose_b ? 1 : ldb, b_col = transpose_b ? ldb : 1;
  for (std::int64_t i = 0; i < m; ++i) {
    T* const row = c + i * ldc;
    if (!accumulate) std::fill_n(row, n, T{});
    for (std::int64_t p = 0; p < k; ++p) {
      const T factor = a[i * a_row + p * a_col];
      for (std::int64_t j = 0; j < n; ++j) row[j] = static_cast<T>(row[j] + static_cast<T>(factor * b[p * b_row + j * b_col]));
    }
  }
}

/// Computes c = op(a) op(b), or adds it to c if `accumulate`. All matrices are row-major; op(a) is m x k and op(b) is k
/// x n. k = 0 gives zeros. Integers wrap around. The old value of c (for example NaN) has no effect, except if
/// `accumulate`. An operand with one row or column may have any stride if it is passed as transposed.
template <class T>
inline void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda,
                 const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool accumulate = false) {
  static_assert(!std::is_same_v<T, bool>, "gspmd: einsum is not defined on bool");
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    if (!accumulate)
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, T{});
    return;
  }
  using u = kernel_t<T>;
  const auto* ua = reinterpret_cast<const u*>(a);
  const auto* ub = reinterpret_cast<const u*>(b);
  auto* uc = reinterpret_cast<u*>(c);
  const std::int64_t a_row = transpose_a ? 1 : lda, a_col = transpose_a ? lda : 1;
  const std::int64_t b_row = transpose_b ? 1 : ldb, b_col = transpose_b ? ldb : 1;
  if (m == 1 && n == 1) {
    const u product = dot(k, ua, a_col, ub, b_row);
    *uc = accumulate ? *uc + product : product;
    return;
  }
  if (k == 1) return outer_product(m, n, ua, a_row, ub, b_col, uc, ldc, accumulate);
  if constexpr (std::is_floating_point_v<T>) {
    const bool is_small = has_at_most(worth_a_gemm_call, m, n, k);
    if (b_col == 1 && is_small_product<T>(m, n, k))
      return small_products({}, m, n, k, ua, a_row, a_col, ub, b_row, uc, ldc, accumulate);
    if constexpr (has_gemm_library) {
      if (!is_small && fits_blas(lda) && fits_blas(ldb) && fits_blas(ldc)) {
        if (n == 1 && fits_blas(m) && fits_blas(k)) return gemv(transpose_a, m, k, a, lda, b, b_row, c, ldc, accumulate);
        if (m == 1 && fits_blas(n) && fits_blas(k))
          return gemv(!transpose_b, n, k, b, ldb, a, a_col, c, std::int64_t{1}, accumulate);
        return library_gemm(transpose_a, transpose_b, m, n, k, a, lda, b, ldb, c, ldc, accumulate);
      }
    }
  }
  if constexpr (!has_gemm_library && std::is_floating_point_v<T>) {
    if (n == 1) return gemv(transpose_a, m, k, a, lda, b, b_row, c, ldc, accumulate);
    if (m == 1) return gemv(!transpose_b, n, k, b, ldb, a, a_col, c, std::int64_t{1}, accumulate);
  }
  gemm_tile(m, n, k, ua, a_row, a_col, ub, b_row, b_col, uc, ldc, accumulate);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
