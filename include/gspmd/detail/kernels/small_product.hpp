// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Matrix products so small that a library call, or a copy of an operand, would take longer than the product. Rows of B
/// and of the result are processed in the widest vectors that fit, then in narrower ones.
///
///   7 x k x 15 floats      8 columns, 4 columns, 2 and 1; each for 4 rows, 2 rows and 1 row
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Returns true if a product has at most `most` multiplications. Compares the extents first, because the product of
/// large extents could overflow.
constexpr bool has_at_most(std::int64_t most, std::int64_t m, std::int64_t n, std::int64_t k) {
  return m <= most && n <= most && k <= most && m * n * k <= most;
}
/// Returns true if small_products is fast for these extents. Large products must fill vectors and have few terms,
/// because terms are added one after the other.
template <class T>
constexpr bool is_small_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t lanes = simd_lanes<T>;
  return has_at_most(worth_a_gemm_call, m, n, k) ||
         (m >= 4 && n >= lanes / 2 && k <= 4 * lanes && has_at_most(most_small_product_in_vectors * lanes * lanes, m, n, k));
}

/// Computes Rows rows, `Bytes` bytes each, of c (+)= the sum over p of a[r * a_row + p * a_col] * b[p * b_row + ...].
template <int Rows, int Bytes, class T>
[[gnu::always_inline]] inline void multiply_columns(std::int64_t k, const T* a, std::int64_t a_row, std::int64_t a_col,
                                                    const T* b, std::int64_t b_row, T* c, std::int64_t ldc, bool accumulate) {
  using cols = typename std::conditional_t<Bytes == sizeof(T), std::type_identity<T>, short_vector<T, Bytes>>::type;
  cols acc[Rows] = {};
  for (std::int64_t p = 0; p < k; ++p) {
    cols row;
    std::memcpy(&row, b + p * b_row, sizeof row);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) acc[r] += a[r * a_row + p * a_col] * row;
  }
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    if (accumulate) {
      cols before;
      std::memcpy(&before, c + r * ldc, sizeof before);
      acc[r] = before + acc[r];
    }
    std::memcpy(c + r * ldc, &acc[r], sizeof acc[r]);
  }
}

/// `count` consecutive products, and the distances between them in a, b and c.
struct small_product_steps {
  std::int64_t count = 1, a = 0, b = 0, c = 0;
};
/// Computes c[i * ldc + j] (+)= the sum over p of a[i * a_row + p * a_col] * b[p * b_row + j], for several products. Up
/// to `together` products are processed by the same code before the next columns.
template <class T>
[[gnu::noinline]] void small_products(const small_product_steps& steps, std::int64_t m, std::int64_t n, std::int64_t k,
                                      const T* a, std::int64_t a_row, std::int64_t a_col, const T* b, std::int64_t b_row, T* c,
                                      std::int64_t ldc, bool accumulate) {
  constexpr std::int64_t together = 16;
  for (std::int64_t first = 0; first < steps.count; first += together) {
    const auto end = first + together < steps.count ? first + together : steps.count;
    const auto all_rows = [&]<int Bytes>(std::int64_t j) __attribute__((always_inline)) {
      for (auto s = first; s < end; ++s) {
        const T *left = a + s * steps.a, *const right = b + s * steps.b + j;
        T* to = c + s * steps.c + j;
        std::int64_t rows = m;
        for (; rows >= 4; rows -= 4, left += 4 * a_row, to += 4 * ldc)
          multiply_columns<4, Bytes>(k, left, a_row, a_col, right, b_row, to, ldc, accumulate);
        if (rows >= 2) {
          multiply_columns<2, Bytes>(k, left, a_row, a_col, right, b_row, to, ldc, accumulate);
          rows -= 2, left += 2 * a_row, to += 2 * ldc;
        }
        if (rows > 0) multiply_columns<1, Bytes>(k, left, a_row, a_col, right, b_row, to, ldc, accumulate);
      }
    };
    const auto as_long_as = [&]<int Bytes>(std::int64_t j) __attribute__((always_inline)) {
      constexpr std::int64_t width = Bytes / static_cast<std::int64_t>(sizeof(T));
      if constexpr (Bytes <= simd_bytes)
        for (; j + width <= n; j += width) all_rows.template operator()<Bytes>(j);
      return j;
    };
    std::int64_t j = as_long_as.template operator()<64>(0);
    j = as_long_as.template operator()<32>(j);
    j = as_long_as.template operator()<16>(j);
    if constexpr (sizeof(T) < 8) j = as_long_as.template operator()<8>(j);
    as_long_as.template operator()<static_cast<int>(sizeof(T))>(j);
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
