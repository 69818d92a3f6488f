// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<cblas.h>)  // otherwise only the test that compiles each header alone includes this file

#include <cblas.h>
#include <algorithm>
#include <cstdint>
#include <limits>

#include "gspmd/detail/support/target.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class Order, class Transpose, class Int, class... Rest>
Int cblas_integer(void (*)(Order, Transpose, Transpose, Int, Rest...));
using blas_int = decltype(cblas_integer(&cblas_sgemm));  // int, or 64 bits wide in an ILP64 build

inline bool fits_blas(std::int64_t x) { return x <= static_cast<std::int64_t>(std::numeric_limits<blas_int>::max()); }

inline void blas_gemm(bool ta, bool tb, blas_int m, blas_int n, blas_int k, const float* a, blas_int lda, const float* b,
                      blas_int ldb, float* c, blas_int ldc, bool accumulate) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1.0F, a, lda, b, ldb,
              accumulate ? 1.0F : 0.0F, c, ldc);
}
inline void blas_gemm(bool ta, bool tb, blas_int m, blas_int n, blas_int k, const double* a, blas_int lda, const double* b,
                      blas_int ldb, double* c, blas_int ldc, bool accumulate) {
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1.0, a, lda, b, ldb,
              accumulate ? 1.0 : 0.0, c, ldc);
}
inline void blas_gemv(bool t, blas_int rows, blas_int cols, const float* a, blas_int lda, const float* x, blas_int x_step,
                      float* y, blas_int y_step) {
  cblas_sgemv(CblasRowMajor, t ? CblasTrans : CblasNoTrans, rows, cols, 1.0F, a, lda, x, x_step, 1.0F, y, y_step);
}
inline void blas_gemv(bool t, blas_int rows, blas_int cols, const double* a, blas_int lda, const double* x, blas_int x_step,
                      double* y, blas_int y_step) {
  cblas_dgemv(CblasRowMajor, t ? CblasTrans : CblasNoTrans, rows, cols, 1.0, a, lda, x, x_step, 1.0, y, y_step);
}

/// Computes y[i] (+)= the sum over p of op(a)[i, p] * x[p]. op(a) is m x k.
template <class T>
inline void library_gemv(bool transpose, std::int64_t m, std::int64_t k, const T* a, std::int64_t lda, const T* x,
                         std::int64_t x_step, T* y, std::int64_t y_step, bool accumulate) {
  // Some BLAS libraries multiply y by zero instead of setting it, and y may hold NaN.
  if (!accumulate)
    for (std::int64_t i = 0; i < m; ++i) y[i * y_step] = T{};
  const auto narrow = [](std::int64_t n) { return static_cast<blas_int>(n); };
  blas_gemv(transpose, narrow(transpose ? k : m), narrow(transpose ? m : k), a, narrow(lda), x, narrow(x_step), y,
            narrow(y_step));
}

/// Computes c (+)= op(a) op(b), row-major. Splits extents that exceed the BLAS's integer type.
template <class T>
void library_gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                  std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool accumulate) {
  const auto narrow = [](std::int64_t x) { return static_cast<blas_int>(x); };
  const auto part = static_cast<std::int64_t>(std::numeric_limits<blas_int>::max() / 2 + 1);
  for (std::int64_t i = 0; i < m; i += part)
    for (std::int64_t j = 0; j < n; j += part)
      for (std::int64_t p = 0; p < k; p += part)
        blas_gemm(transpose_a, transpose_b, narrow(std::min(part, m - i)), narrow(std::min(part, n - j)),
                  narrow(std::min(part, k - p)), a + (transpose_a ? p * lda + i : i * lda + p), narrow(lda),
                  b + (transpose_b ? j * ldb + p : p * ldb + j), narrow(ldb), c + i * ldc + j, narrow(ldc), accumulate || p > 0);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#endif
