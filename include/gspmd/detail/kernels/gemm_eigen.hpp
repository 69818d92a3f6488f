// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<Eigen/Core>)  // otherwise only the test that compiles each header alone includes this file

#include <Eigen/Core>
#include <cstdint>

#include "gspmd/detail/support/target.hpp"

/// Eigen's matrix product with the interface of gemm_cblas.hpp. It adds seconds of compile time, so it is included only
/// if there is no CBLAS.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

inline bool fits_blas(std::int64_t) { return true; }

template <class T, int Order>
using eigen_matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Order>;
template <class T, int Order>
using eigen_view = Eigen::Map<const eigen_matrix<T, Order>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <int OrderA, int OrderB, class T>
inline void eigen_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t lda, const T* b, std::int64_t ldb,
                       T* c, std::int64_t ldc, bool accumulate) {
  const eigen_view<T, OrderA> left(a, m, k, Eigen::OuterStride<>(lda));
  const eigen_view<T, OrderB> right(b, k, n, Eigen::OuterStride<>(ldb));
  Eigen::Map<eigen_matrix<T, Eigen::RowMajor>, Eigen::Unaligned, Eigen::OuterStride<>> result(c, m, n, Eigen::OuterStride<>(ldc));
  if (!accumulate) result.setZero();
  result.noalias() += left * right;
}

template <class T>
void library_gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                  std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc, bool accumulate) {
  constexpr int row = Eigen::RowMajor, column = Eigen::ColMajor;  // a transposed row-major matrix is a column-major one
  if (!transpose_a && !transpose_b) eigen_gemm<row, row>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  else if (!transpose_a) eigen_gemm<row, column>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  else if (!transpose_b) eigen_gemm<column, row>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
  else eigen_gemm<column, column>(m, n, k, a, lda, b, ldb, c, ldc, accumulate);
}

/// Computes y[i] (+)= the sum over p of op(a)[i, p] * x[p]. op(a) is m x k.
template <class T>
inline void library_gemv(bool transpose, std::int64_t m, std::int64_t k, const T* a, std::int64_t lda, const T* x,
                         std::int64_t x_step, T* y, std::int64_t y_step, bool accumulate) {
  using vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  const Eigen::Map<const vector, Eigen::Unaligned, Eigen::InnerStride<>> from(x, k, Eigen::InnerStride<>(x_step));
  Eigen::Map<vector, Eigen::Unaligned, Eigen::InnerStride<>> to(y, m, Eigen::InnerStride<>(y_step));
  if (!accumulate) to.setZero();
  if (transpose) to.noalias() += eigen_view<T, Eigen::ColMajor>(a, m, k, Eigen::OuterStride<>(lda)) * from;
  else to.noalias() += eigen_view<T, Eigen::RowMajor>(a, m, k, Eigen::OuterStride<>(lda)) * from;
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#endif
