// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "gspmd/detail/ir/matrix_functions.hpp"
#include "gspmd/detail/kernels/matrix_blocks.hpp"
#include "gspmd/detail/support/target.hpp"

/// The factors of elimination with partial pivoting as results, and determinants by them (Golub and Van Loan, 3.4).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class T>
void run_lu(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2], to = blocks[1].strides[rank - 2];
  for_each_matrix<T, T, std::int32_t>(rank, blocks, [&](const T* a, T* factors, std::int32_t* order) {
    for (std::int64_t i = 0; i < n; ++i) {
      order[i] = static_cast<std::int32_t>(i);
      for (std::int64_t j = 0; j < n; ++j) factors[i * to + j] = a[i * from + j];
    }
    pivoting<T>{factors, n, to, nullptr, 0, 0, order}.factor(0, n);
  });
}
template <class T>
void run_slogdet(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2];
  T* const own = static_cast<T*>(blocks[4].data);
  for_each_matrix<T, T, T, T>(rank, blocks, [&](const T* a, T* sign, T* log_size, T* determinant) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[i * n + j] = a[i * from + j];
    pivoting<T> factors{own, n, n, nullptr, 0, 0};
    factors.factor(0, n);
    T turned = factors.is_odd ? T(-1) : T(1), sum = 0, product = turned;
    // The product as a number below 1 and an exponent: on the way to a determinant within the range of T it may leave that.
    int exponent = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const T pivot = own[i * n + i], size = std::fabs(pivot);
      turned *= size > 0 ? pivot / size : pivot;  // 0 and NaN stay
      sum += std::log(size);
      int of_pivot = 0, of_product = 0;
      product = std::frexp(product * std::frexp(pivot, &of_pivot), &of_product);
      exponent += of_pivot + of_product;
    }
    *sign = turned;
    *log_size = sum;
    *determinant = std::ldexp(product, exponent);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
