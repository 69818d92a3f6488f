// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/kernels/gemm.hpp"
#include "gspmd/detail/support/complex_numbers.hpp"
#include "gspmd/detail/support/target.hpp"

/// Functions that matrix factorisations call for real and complex elements: parts, conjugates, sizes, and c -= op(a)
/// op(b).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The real type of elements T.
template <class T>
struct part_type_of {
  using type = T;
};
template <class Part>
struct part_type_of<complex_number<Part>> {
  using type = Part;
};
template <class T>
using part_t = typename part_type_of<T>::type;

template <class T>
[[gnu::always_inline]] inline T conjugate_of(T x) {
  if constexpr (is_complex_element<T>) return {x.re, -x.im};
  else return x;
}
template <class T>
[[gnu::always_inline]] inline part_t<T> real_of(T x) {
  if constexpr (is_complex_element<T>) return x.re;
  else return x;
}
template <class T>
[[gnu::always_inline]] inline T divided(T x, part_t<T> by) {
  if constexpr (is_complex_element<T>) return {x.re / by, x.im / by};
  else return x / by;
}
template <class T>
[[gnu::always_inline]] inline T scaled(T x, part_t<T> by) {
  if constexpr (is_complex_element<T>) return {x.re * by, x.im * by};
  else return x * by;
}
/// Returns the size of a candidate for the pivot: |x| or, as in LAPACK, |re| + |im|, which needs no square root.
template <class T>
[[gnu::always_inline]] inline part_t<T> pivot_size(T x) {
  if constexpr (is_complex_element<T>) return std::fabs(x.re) + std::fabs(x.im);
  else return std::fabs(x);
}
template <class T>
inline part_t<T> modulus(T x) {
  if constexpr (is_complex_element<T>) return std::hypot(x.re, x.im);
  else return std::fabs(x);
}
/// Returns x scaled by a power of 2 to a size of about 1. Stores the exponent of the factor that restores x.
template <class T>
T without_exponent(T x, int* exponent) {
  if constexpr (is_complex_element<T>) {
    std::frexp(std::max(std::fabs(x.re), std::fabs(x.im)), exponent);
    return {std::ldexp(x.re, -*exponent), std::ldexp(x.im, -*exponent)};
  } else {
    return std::frexp(x, exponent);
  }
}
template <class T>
T times_power(T x, int exponent) {
  if constexpr (is_complex_element<T>) return {std::ldexp(x.re, exponent), std::ldexp(x.im, exponent)};
  else return std::ldexp(x, exponent);
}

/// Computes c -= op(a) op(b) without a library, one row of c at a time.
template <class T>
void subtract_product_by_rows(bool transpose_a, bool adjoint_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                              std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    T* const row = c + i * ldc;
    for (std::int64_t p = 0; p < k; ++p) {
      const T factor = transpose_a ? a[p * lda + i] : a[i * lda + p];
      if (adjoint_b)
        for (std::int64_t j = 0; j < n; ++j) row[j] = row[j] - factor * conjugate_of(b[j * ldb + p]);
      else
        for (std::int64_t j = 0; j < n; ++j) row[j] = row[j] - factor * b[p * ldb + j];
    }
  }
}

#if defined(GSPMD_HAS_CBLAS)
template <class T>
void subtract_by_library(bool transpose_a, bool adjoint_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                         std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  const T minus(-1), one(1);
  const auto call = [&](auto product, CBLAS_TRANSPOSE adjoint, auto factor, auto kept) {
    const auto narrow = [](std::int64_t x) { return static_cast<blas_int>(x); };
    product(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, adjoint_b ? adjoint : CblasNoTrans, narrow(m), narrow(n),
            narrow(k), factor, a, narrow(lda), b, narrow(ldb), kept, c, narrow(ldc));
  };
  if constexpr (std::is_same_v<T, float>) call([](auto... x) { cblas_sgemm(x...); }, CblasTrans, minus, one);
  else if constexpr (std::is_same_v<T, double>) call([](auto... x) { cblas_dgemm(x...); }, CblasTrans, minus, one);
  else if constexpr (std::is_same_v<part_t<T>, float>) call([](auto... x) { cblas_cgemm(x...); }, CblasConjTrans, &minus, &one);
  else call([](auto... x) { cblas_zgemm(x...); }, CblasConjTrans, &minus, &one);
}
#elif __has_include(<Eigen/Core>)
template <class T>
void subtract_by_library(bool transpose_a, bool adjoint_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                         std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  using number = std::conditional_t<is_complex_element<T>, std::complex<part_t<T>>, T>;
  using matrix = Eigen::Matrix<number, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using view = Eigen::Map<const matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
  const auto as = [](const T* x) { return reinterpret_cast<const number*>(x); };
  const view left(as(a), transpose_a ? k : m, transpose_a ? m : k, Eigen::OuterStride<>(lda));
  const view right(as(b), adjoint_b ? n : k, adjoint_b ? k : n, Eigen::OuterStride<>(ldb));
  Eigen::Map<matrix, Eigen::Unaligned, Eigen::OuterStride<>> to(reinterpret_cast<number*>(c), m, n, Eigen::OuterStride<>(ldc));
  if (transpose_a && adjoint_b) to.noalias() -= left.transpose() * right.adjoint();
  else if (transpose_a) to.noalias() -= left.transpose() * right;
  else if (adjoint_b) to.noalias() -= left * right.adjoint();
  else to.noalias() -= left * right;
}
#endif

template <class T>
void negate_rows(std::int64_t rows, std::int64_t cols, T* x, std::int64_t ldx) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) x[i * ldx + j] = -x[i * ldx + j];
}
/// Computes c -= op(a) op(b). op(a) is a or its transpose; op(b) is b or its conjugate transpose.
template <class T>
void subtract_product(bool transpose_a, bool adjoint_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                      std::int64_t lda, const T* b, std::int64_t ldb, T* c, std::int64_t ldc) {
  if (m <= 0 || n <= 0 || k <= 0) return;
  if constexpr (has_gemm_library) {
    bool is_small = has_at_most(worth_a_gemm_call, m, n, k);
    if constexpr (!is_complex_element<T>)
      is_small = is_small || m == 1 || n == 1 || k == 1 || (!adjoint_b && is_small_product<T>(m, n, k));
    if (!is_small && fits_blas(std::max({m, n, k, lda, ldb, ldc})))
      return subtract_by_library(transpose_a, adjoint_b, m, n, k, a, lda, b, ldb, c, ldc);
  }
  if constexpr (is_complex_element<T>) {
    subtract_product_by_rows(transpose_a, adjoint_b, m, n, k, a, lda, b, ldb, c, ldc);
  } else {
    negate_rows(m, n, c, ldc);
    gemm(transpose_a, adjoint_b, m, n, k, a, lda, b, ldb, c, ldc, true);
    negate_rows(m, n, c, ldc);
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
