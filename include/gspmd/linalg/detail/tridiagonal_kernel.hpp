// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/support/target.hpp"
#include "gspmd/linalg/detail/matrix_blocks.hpp"
#include "gspmd/linalg/detail/matrix_functions.hpp"

/// Tridiagonal systems of a device, line by line along the last dim.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Solves lower[i] x[i-1] + diagonal[i] x[i] + upper[i] x[i+1] = b[i] for `Lanes` lines of n elements. `at` has lower,
/// diagonal, upper, b and x. The lines of block k are stride[k] apart. `scratch` has 2 n Lanes numbers.
template <int Lanes, class T>
void solve_tridiagonal(std::int64_t n, T* const* at, const std::int64_t* stride, T* scratch) {
  const T *const lower = at[0], *const diagonal = at[1], *const upper = at[2], *const b = at[3];
  T* const x = at[4];
  T *w = scratch, *g = scratch + n * Lanes;
  for (std::int64_t i = 0; i < n; ++i, w += Lanes, g += Lanes)
    for (int k = 0; k < Lanes; ++k) {
      const T below = i == 0 ? T(0) : lower[k * stride[0] + i];
      const T before = i == 0 ? T(0) : w[k - Lanes], known = i == 0 ? T(0) : g[k - Lanes];
      const T inverse = T(1) / (diagonal[k * stride[1] + i] - below * before);
      w[k] = upper[k * stride[2] + i] * inverse;
      g[k] = (b[k * stride[3] + i] - below * known) * inverse;
    }
  w -= Lanes;
  g -= Lanes;
  for (int k = 0; k < Lanes; ++k) x[k * stride[4] + n - 1] = g[k];
  for (std::int64_t i = n - 1; i-- > 0;) {
    w -= Lanes;
    g -= Lanes;
    for (int k = 0; k < Lanes; ++k) x[k * stride[4] + i] = g[k] = g[k] - w[k] * g[k + Lanes];
  }
}
template <class T>
void run_tridiagonal(int rank, const erased_block* blocks) {
  constexpr int lanes = tridiagonal_lanes;
  const std::int64_t n = blocks[0].extents[rank - 1], rows = blocks[0].extents[rank - 2];
  if (n == 0) return;
  std::int64_t stride[5];
  for (int b = 0; b < 5; ++b) stride[b] = blocks[b].strides[rank - 2];
  T* const scratch = static_cast<T*>(blocks[5].data);
  for_each_matrix<T, T, T, T, T>(rank, blocks, [&](T* l, T* d, T* u, T* b, T* x) {
    T* at[] = {l, d, u, b, x};
    for (std::int64_t row = 0, step; row < rows; row += step) {
      step = row + lanes <= rows ? lanes : 1;
      if (step == lanes) solve_tridiagonal<lanes>(n, at, stride, scratch);
      else solve_tridiagonal<1>(n, at, stride, scratch);
      for (int k = 0; k < 5; ++k) at[k] += step * stride[k];
    }
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
