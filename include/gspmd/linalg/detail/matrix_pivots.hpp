// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/matrix_blocks.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// Elimination with partial pivoting: its factors as results, and determinants from the factors (Golub and Van Loan,
/// 3.4).
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

template <class T>
void run_lu(int rank, const erased_block* blocks) {
  const std::int64_t m = blocks[0].extents[rank - 2], n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2],
                     to = blocks[1].strides[rank - 2];
  for_each_matrix<T, T, std::int32_t>(rank, blocks, [&](const T* a, T* factors, std::int32_t* order) {
    for (std::int64_t i = 0; i < m; ++i) {
      order[i] = static_cast<std::int32_t>(i);
      for (std::int64_t j = 0; j < n; ++j) factors[i * to + j] = a[i * from + j];
    }
    pivoting<T>{factors, m, to, nullptr, 0, 0, order, n}.factor(0, n);
  });
}
/// Returns x / |x|. 0 and NaN stay unchanged. The result for a real infinity is its sign.
template <class T>
T direction(T x, part_t<T> size) {
  if constexpr (is_complex_element<T>) return size > 0 ? divided(x, size) : x;
  else return size > 0 ? std::copysign(T(1), x) : x;
}
template <class T>
void run_slogdet(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2];
  T* const own = static_cast<T*>(blocks[4].data);
  using part = part_t<T>;
  for_each_matrix<T, T, part, T>(rank, blocks, [&](const T* a, T* sign, part* log_size, T* determinant) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[i * n + j] = a[i * from + j];
    pivoting<T> factors{own, n, n, nullptr, 0, 0};
    const bool has_pivots = factors.factor(0, n);
    T turned(factors.is_odd ? -1 : 1), product = turned;
    part sum = 0;
    // The product is kept as a number below 1 and an exponent. Partial products may leave the range of T even if the
    // determinant does not.
    int exponent = 0;
    bool is_number = true;
    for (std::int64_t i = 0; i < n; ++i) {
      const T pivot = own[i * n + i];
      const part size = modulus(pivot);
      is_number = is_number && size == size;
      turned = turned * direction(pivot, size);
      sum += std::log(size);
      int of_pivot = 0, of_product = 0;
      const T small = without_exponent(pivot, &of_pivot);
      product = without_exponent(product * small, &of_product);
      exponent += of_pivot + of_product;
    }
    const bool is_singular = !has_pivots && is_number;  // also if another pivot is infinite, as in numpy
    *sign = is_singular ? T(0) : turned;
    *log_size = is_singular ? -std::numeric_limits<part>::infinity() : sum;
    *determinant = is_singular ? T(0) : times_power(product, exponent);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
