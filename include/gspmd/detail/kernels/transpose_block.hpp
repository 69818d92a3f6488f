// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"

/// Transposition of a plane by square blocks that fit into vector registers.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The shuffle of stage `Step` of a transposition. It takes the lanes of rows r and r + Step whose bit `Step` is unset
/// (Upper: set). After all stages, rows and lanes are exchanged.
template <int Step, bool Upper, class V, int... Lane>
inline V interleave(const V& a, const V& b, std::integer_sequence<int, Lane...>) {
  constexpr int n = sizeof...(Lane);
  return __builtin_shufflevector(
      a, b, (Upper ? ((Lane & Step) == 0 ? Lane + Step : Lane + n) : ((Lane & Step) == 0 ? Lane : Lane - Step + n))...);
}

template <int Step, class V, int Lanes>
inline void transpose_stage(V (&rows)[Lanes]) {
#pragma GCC unroll 16
  for (int r = 0; r < Lanes; ++r)
    if ((r & Step) == 0) {
      const V a = rows[r], b = rows[r + Step];
      rows[r] = interleave<Step, false>(a, b, std::make_integer_sequence<int, Lanes>{});
      rows[r + Step] = interleave<Step, true>(a, b, std::make_integer_sequence<int, Lanes>{});
    }
  if constexpr (2 * Step < Lanes) transpose_stage<2 * Step>(rows);
}

template <bool Streams, class T>
inline void transpose_block(const T* in, std::int64_t in_ld, T* out, std::int64_t out_ld) {
  constexpr int lanes = simd_lanes<T>;
  simd<T> rows[lanes];
#pragma GCC unroll 16
  for (int r = 0; r < lanes; ++r) rows[r] = load_simd(in + r * in_ld);
  transpose_stage<1>(rows);
#pragma GCC unroll 16
  for (int r = 0; r < lanes; ++r) {
    if constexpr (Streams) stream_simd(out + r * out_ld, rows[r]);
    else store_simd(out + r * out_ld, rows[r]);
  }
}

/// Elements of at least 4 bytes are transposed in blocks.
template <class T>
inline constexpr bool has_blocks = sizeof(T) >= 4 && std::is_arithmetic_v<T>;

template <bool Streams, class T>
inline void transpose_tile(std::int64_t rows, std::int64_t cols, const T* in, std::int64_t in_ld, T* out, std::int64_t out_ld) {
  std::int64_t whole_rows = 0, whole_columns = 0;
  if constexpr (has_blocks<T>) {
    constexpr int lanes = simd_lanes<T>;
    whole_rows = rows - rows % lanes;
    whole_columns = cols - cols % lanes;
    for (std::int64_t i = 0; i < whole_rows; i += lanes)  // reads follow the rows, which hardware prefetchers recognise
      for (std::int64_t j = 0; j < whole_columns; j += lanes)
        transpose_block<Streams>(in + i * in_ld + j, in_ld, out + j * out_ld + i, out_ld);
  }
  for (std::int64_t j = 0; j < cols; ++j)
    for (std::int64_t i = j < whole_columns ? whole_rows : 0; i < rows; ++i)
      std::memcpy(out + j * out_ld + i, in + i * in_ld + j, sizeof(T));  // memcpy, because the memory may have another
                                                                         // element type
}

/// Computes out[j * out_ld + i] = in[i * in_ld + j] for i < rows, j < cols.
template <class T>
inline void transpose_plane(std::int64_t rows, std::int64_t cols, const T* in, std::int64_t in_ld, T* out, std::int64_t out_ld,
                            bool streams) {
  // Tiles limit the number of pages in use. Wide tiles are the fastest with streaming stores, square tiles inside the
  // caches.
  const std::int64_t tile_rows = streams ? 16 : 64;
  const std::int64_t tile_columns = streams ? 2048 / static_cast<std::int64_t>(sizeof(T)) : 64;
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(out) % simd_bytes == 0 && out_ld * static_cast<std::int64_t>(sizeof(T)) % simd_bytes == 0;
  for (std::int64_t j = 0; j < cols; j += tile_columns)
    for (std::int64_t i = 0; i < rows; i += tile_rows) {
      const auto height = std::min(tile_rows, rows - i), width = std::min(tile_columns, cols - j);
      if (has_blocks<T> && streams && is_aligned)
        transpose_tile<has_blocks<T>>(height, width, in + i * in_ld + j, in_ld, out + j * out_ld + i, out_ld);
      else transpose_tile<false>(height, width, in + i * in_ld + j, in_ld, out + j * out_ld + i, out_ld);
    }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
