// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/sum_parts.hpp"
#include "gspmd/detail/kernels/reduce_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"

/// Matrix products that no BLAS covers: integers, products too small for a call, strides beyond a BLAS's integers, and
/// floats if neither CBLAS nor Eigen is available. T is a type of kernel_t.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns the inner product of a[i * a_step] and b[i * b_step], for an n so small that the sum needs no parts.
template <class T>
inline T short_dot(std::int64_t n, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step) {
  T sum{};
  std::int64_t i = 0;
  if (a_step == 1 && b_step == 1) {
    constexpr int lanes = simd_lanes<T>;
    if (n >= lanes) {
      simd<T> acc0{}, acc1{}, acc2{}, acc3{};
      for (; i + 4 * lanes <= n; i += 4 * lanes) {
        acc0 += load_simd(a + i) * load_simd(b + i);
        acc1 += load_simd(a + i + lanes) * load_simd(b + i + lanes);
        acc2 += load_simd(a + i + 2 * lanes) * load_simd(b + i + 2 * lanes);
        acc3 += load_simd(a + i + 3 * lanes) * load_simd(b + i + 3 * lanes);
      }
      for (; i + lanes <= n; i += lanes) acc0 += load_simd(a + i) * load_simd(b + i);
      acc0 += acc1 + (acc2 + acc3);
      sum = fold_lanes<monoid::add, T>(acc0);
    }
  }
  for (; i < n; ++i) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

/// Returns the inner product of a[i * a_step] and b[i * b_step].
template <class T>
inline T dot(std::int64_t n, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step) {
  const auto leaf = most_in_turn * (a_step == 1 && b_step == 1 ? 4 * simd_lanes<T> : 1);
  if (n <= leaf || std::is_integral_v<T>) return short_dot(n, a, a_step, b, b_step);
  const auto part = part_size(n, leaf);
  T sum{};
  for (std::int64_t i = 0; i < n; i += part) sum += dot(std::min(part, n - i), a + i * a_step, a_step, b + i * b_step, b_step);
  return sum;
}

/// Computes c[i, j] (+)= a[i] * b[j].
template <class T>
inline void outer_product(std::int64_t m, std::int64_t n, const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, T* c,
                          std::int64_t ldc, bool accumulate) {
  for (std::int64_t i = 0; i < m; ++i) {
    const T x = a[i * a_step];
    T* row = c + i * ldc;
    std::int64_t j = 0;
    if (b_step == 1) {
      constexpr int lanes = simd_lanes<T>;
      const auto xs = broadcast_simd(x);
      for (; j + lanes <= n; j += lanes) {
        const auto product = xs * load_simd(b + j);
        store_simd(row + j, accumulate ? load_simd<T>(row + j) + product : product);
      }
    }
    // Counts down: otherwise GCC's clones for constant extents warn of iterations that never happen.
    for (std::int64_t left = n - j; left > 0; --left) {
      const T product = x * b[(n - left) * b_step];
      row[n - left] = accumulate ? row[n - left] + product : product;
    }
  }
}

/// Computes Rows x 2 vectors of c. The rows of b are `b_row` elements apart.
template <int Rows, class T>
inline void gemm_register_tile(std::int64_t k, const T* a, std::int64_t a_row, std::int64_t a_col, const T* b, std::int64_t b_row,
                               T* c, std::int64_t ldc, std::int64_t width, bool accumulate) {
  constexpr int lanes = simd_lanes<T>;
  simd<T> acc[Rows][2] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    const auto b0 = load_simd(b + p * b_row), b1 = load_simd(b + p * b_row + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const T x = a[r * a_row + p * a_col];
      acc[r][0] += x * b0;
      acc[r][1] += x * b1;
    }
  }
  for (int r = 0; r < Rows; ++r) {
    T* row = c + r * ldc;
    if (width == 2 * lanes) {
      store_simd(row, accumulate ? load_simd<T>(row) + acc[r][0] : acc[r][0]);
      store_simd(row + lanes, accumulate ? load_simd<T>(row + lanes) + acc[r][1] : acc[r][1]);
    } else {
      for (int j = 0; j < width; ++j) {
        const T x = acc[r][j / lanes][j % lanes];
        row[j] = accumulate ? row[j] + x : x;
      }
    }
  }
}

/// Computes c[i * ldc + j] (+)= the sum over p of a[i * a_row + p * a_col] * b[p * b_row + j * b_col], k >= 1. Not
/// inlined: if a library computes the large products, clones for constant extents would be code that never runs.
template <class T>
[[gnu::noinline]] void gemm_tile(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t a_row,
                                 std::int64_t a_col, const T* b, std::int64_t b_row, std::int64_t b_col, T* c, std::int64_t ldc,
                                 bool accumulate) {
  constexpr int lanes = simd_lanes<T>;
  constexpr std::int64_t k_block = 64, n_block = std::max(64, 2 * lanes);
  alignas(64) T packed[k_block * n_block];
  for (std::int64_t j0 = 0; j0 < n; j0 += n_block) {
    const auto width = std::min(n_block, n - j0);
    const auto padded = (width + 2 * lanes - 1) / (2 * lanes) * (2 * lanes);
    for (std::int64_t p0 = 0; p0 < k; p0 += k_block) {
      const auto depth = std::min(k_block, k - p0);
      for (std::int64_t p = 0; p < depth; ++p) {
        const T* from = b + (p0 + p) * b_row + j0 * b_col;
        T* to = packed + p * padded;
        for (std::int64_t j = 0; j < width; ++j) to[j] = from[j * b_col];
        for (std::int64_t j = width; j < padded; ++j) to[j] = T{};
      }
      const bool adds = accumulate || p0 > 0;
      for (std::int64_t j = 0; j < width; j += 2 * lanes) {
        const auto part = std::min<std::int64_t>(2 * lanes, width - j);
        const auto whole = m / 4 * 4;
        for (std::int64_t i = 0; i < whole; i += 4)
          gemm_register_tile<4>(depth, a + i * a_row + p0 * a_col, a_row, a_col, packed + j, padded, c + i * ldc + j0 + j, ldc,
                                part, adds);
        for (auto i = whole; i < m; ++i)
          gemm_register_tile<1>(depth, a + i * a_row + p0 * a_col, a_row, a_col, packed + j, padded, c + i * ldc + j0 + j, ldc,
                                part, adds);
      }
    }
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
