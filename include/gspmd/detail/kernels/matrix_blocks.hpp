// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "gspmd/detail/ir/matrix_functions.hpp"
#include "gspmd/detail/kernels/matrix_factors.hpp"
#include "gspmd/detail/support/target.hpp"

/// The matrices of a device, one after the other: the last two dims of its blocks, whose rows lie one after the other.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Calls f(pointers to the first elements of its blocks) for the matrices of a device.
template <class T, int Blocks, class F>
void for_each_matrix(int rank, const erased_block* blocks, F f) {
  std::int64_t index[max_rank]{}, count = 1;
  for (int d = 0; d < rank - 2; ++d) count *= blocks[0].extents[d];
  for (std::int64_t done = 0; done < count; ++done) {
    T* at[Blocks];
    for (int b = 0; b < Blocks; ++b) {
      at[b] = static_cast<T*>(blocks[b].data);
      for (int d = 0; d < rank - 2; ++d) at[b] += index[d] * blocks[b].strides[d];
    }
    f(at);
    for (int d = rank - 3; d >= 0; --d) {
      if (++index[d] < blocks[0].extents[d]) break;
      index[d] = 0;
    }
  }
}
template <class T>
void run_cholesky(int rank, const erased_block* blocks) {
  const std::int64_t n = blocks[0].extents[rank - 1], from = blocks[0].strides[rank - 2], to = blocks[1].strides[rank - 2];
  for_each_matrix<T, 2>(rank, blocks, [&](T* const* at) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) at[1][i * to + j] = at[0][i * from + j];
    if (!factor_cholesky(n, at[1], to)) fill_rows(n, n, std::numeric_limits<T>::quiet_NaN(), at[1], to);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = i + 1; j < n; ++j) at[1][i * to + j] = 0;
  });
}
template <class T>
void run_triangular_solve(int rank, const void* object, const erased_block* blocks) {
  const auto& way = *static_cast<const matrix_way*>(object);
  const std::int64_t n = blocks[1].extents[rank - 2], k = blocks[1].extents[rank - 1];
  const std::int64_t lda = blocks[0].strides[rank - 2], from = blocks[1].strides[rank - 2], to = blocks[2].strides[rank - 2];
  for_each_matrix<T, 3>(rank, blocks, [&](T* const* at) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < k; ++j) at[2][i * to + j] = at[1][i * from + j];
    solve_triangle(way, n, k, at[0], lda, at[2], to);
  });
}
template <class T>
void run_solve(int rank, const void* object, const erased_block* blocks) {
  const bool transposed = static_cast<const matrix_way*>(object)->transposed;
  const std::int64_t n = blocks[1].extents[rank - 2], k = blocks[1].extents[rank - 1];
  const std::int64_t lda = blocks[0].strides[rank - 2], from = blocks[1].strides[rank - 2], to = blocks[2].strides[rank - 2];
  T* const own = static_cast<T*>(blocks[3].data);
  for_each_matrix<T, 3>(rank, blocks, [&](T* const* at) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) own[transposed ? j * n + i : i * n + j] = at[0][i * lda + j];
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < k; ++j) at[2][i * to + j] = at[1][i * from + j];
    if (!pivoting<T>{own, n, n, at[2], k, to}.solve()) fill_rows(n, k, std::numeric_limits<T>::quiet_NaN(), at[2], to);
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
