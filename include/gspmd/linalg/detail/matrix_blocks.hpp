// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/cholesky_factors.hpp"
#include "gspmd/linalg/detail/matrix_factors.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// The matrices of a device: the last two dims of its blocks. The elements of a row are contiguous; rows can be further
/// apart.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Calls f for each matrix of a device, with pointers to its first element in each block. Block b has the element type
/// T number b.
template <class... T, class F>
void for_each_matrix(int rank, const erased_block* blocks, F f) {
  std::int64_t index[max_rank]{}, count = 1;
  for (int d = 0; d < rank - 2; ++d) count *= blocks[0].extents[d];
  const auto offset = [&](std::size_t b) {
    std::int64_t sum = 0;
    for (int d = 0; d < rank - 2; ++d) sum += index[d] * blocks[b].strides[d];
    return sum;
  };
  for (std::int64_t done = 0; done < count; ++done) {
    [&]<std::size_t... B>(std::index_sequence<B...>) {
      f(static_cast<T*>(blocks[B].data) + offset(B)...);
    }(std::index_sequence_for<T...>{});
    for (int d = rank - 3; d >= 0; --d) {
      if (++index[d] < blocks[0].extents[d]) break;
      index[d] = 0;
    }
  }
}
template <class T>
void run_cholesky(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2], to = blocks[1].strides[rank - 2];
  if (n <= cholesky_leaf) {
    small_cholesky<T> some{.n = n, .lda = from, .ldl = to};
    for_each_matrix<T, T>(rank, blocks, [&](const T* a, T* l) { some.add(a, l); });
    return some.finish();
  }
  for_each_matrix<T, T>(rank, blocks, [&](const T* a, T* l) {
    take_hermitian_part(n, a, from, l, to);
    if (!factor_cholesky(n, l, to)) fill_rows(n, n, std::numeric_limits<part_t<T>>::quiet_NaN(), l, to);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = i + 1; j < n; ++j) l[i * to + j] = T(0);
  });
}
template <class T>
void run_triangular_solve(int rank, const void* object, const erased_block* blocks) {
  const auto& way = *static_cast<const matrix_way*>(object);
  const std::int64_t n = blocks[1].extents[rank - 2], k = blocks[1].extents[rank - 1];
  const std::int64_t lda = blocks[0].strides[rank - 2], from = blocks[1].strides[rank - 2], to = blocks[2].strides[rank - 2];
  for_each_matrix<T, T, T>(rank, blocks, [&](const T* a, const T* b, T* x) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < k; ++j) x[i * to + j] = b[i * from + j];
    solve_triangle(way, n, k, a, lda, x, to);
  });
}
template <class T>
void run_solve(int rank, const void* object, const erased_block* blocks) {
  const bool transposed = static_cast<const matrix_way*>(object)->transposed;
  const std::int64_t n = blocks[1].extents[rank - 2], k = blocks[1].extents[rank - 1];
  const std::int64_t lda = blocks[0].strides[rank - 2], from = blocks[1].strides[rank - 2], to = blocks[2].strides[rank - 2];
  T* const own = static_cast<T*>(blocks[3].data);
  for_each_matrix<T, T, T>(rank, blocks, [&](const T* a, const T* b, T* x) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[transposed ? j * n + i : i * n + j] = a[i * lda + j];
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < k; ++j) x[i * to + j] = b[i * from + j];
    if (!pivoting<T>{own, n, n, x, k, to}.solve()) fill_rows(n, k, std::numeric_limits<part_t<T>>::quiet_NaN(), x, to);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
