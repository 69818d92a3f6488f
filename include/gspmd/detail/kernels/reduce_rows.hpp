// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/sum_parts.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"

/// The inner loops of reductions: of a run of neighbours to one element, and of many rows to one row.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The reduction of so few neighbours that they need no parts. Several partial results hide the latency of the operation.
template <monoid Kind, class U>
inline U reduce_run(const U* in, std::int64_t n) {
  constexpr int lanes = simd_lanes<U>;
  std::int64_t i = 1;
  U result = in[0];
  if (n >= 2 * lanes) {
    auto acc = load_simd(in);
    i = lanes;
    if (n >= 4 * lanes) {
      auto acc1 = load_simd(in + lanes), acc2 = load_simd(in + 2 * lanes), acc3 = load_simd(in + 3 * lanes);
      for (i = 4 * lanes; i + 4 * lanes <= n; i += 4 * lanes) {
        acc = combine_simd<Kind>(acc, load_simd(in + i));
        acc1 = combine_simd<Kind>(acc1, load_simd(in + i + lanes));
        acc2 = combine_simd<Kind>(acc2, load_simd(in + i + 2 * lanes));
        acc3 = combine_simd<Kind>(acc3, load_simd(in + i + 3 * lanes));
      }
      acc = combine_simd<Kind>(combine_simd<Kind>(acc, acc1), combine_simd<Kind>(acc2, acc3));
    }
    for (; i + lanes <= n; i += lanes) acc = combine_simd<Kind>(acc, load_simd(in + i));
    result = acc[0];
    for (int l = 1; l < lanes; ++l) result = combine<Kind>(result, static_cast<U>(acc[l]));
  }
  for (; i < n; ++i) result = combine<Kind>(result, in[i]);
  return result;
}

/// The reduction of `n` neighbours, n >= 1.
template <monoid Kind, class U>
inline U reduce_contiguous(const U* in, std::int64_t n) {
  constexpr std::int64_t leaf = most_in_turn * 4 * simd_lanes<U>;
  if (n <= leaf) return reduce_run<Kind>(in, n);
  const auto part = part_size(n, leaf);
  U result = reduce_contiguous<Kind>(in, part);
  for (std::int64_t i = part; i < n; i += part)
    result = combine<Kind>(result, reduce_contiguous<Kind>(in + i, std::min(part, n - i)));
  return result;
}

/// out[o] = the reduction of the `n` neighbours from in[o * step] on, for every o < outer. Short ones by four, each in the order
/// of reduce_contiguous: how many there are then hardly costs anything where it is not a constant.
template <monoid Kind, class U>
inline void reduce_each(const U* in, std::int64_t outer, std::int64_t step, std::int64_t n, U* out) {
  std::int64_t o = 0;
  if (n < 2 * simd_lanes<U>)
    for (; o + 4 <= outer; o += 4) {
      const U *r0 = in + o * step, *r1 = r0 + step, *r2 = r1 + step, *r3 = r2 + step;
      U a = r0[0], b = r1[0], c = r2[0], d = r3[0];
      for (std::int64_t i = 1; i < n; ++i) {
        a = combine<Kind>(a, r0[i]);
        b = combine<Kind>(b, r1[i]);
        c = combine<Kind>(c, r2[i]);
        d = combine<Kind>(d, r3[i]);
      }
      out[o] = a;
      out[o + 1] = b;
      out[o + 2] = c;
      out[o + 3] = d;
    }
  for (; o < outer; ++o) out[o] = reduce_contiguous<Kind>(in + o * step, n);
}

/// out[j] = out[j] combined with row[j]
template <monoid Kind, class U>
inline void combine_row(const U* row, std::int64_t n, U* out) {
  constexpr int lanes = simd_lanes<U>;
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) store_simd(out + j, combine_simd<Kind>(load_simd<U>(out + j), load_simd(row + j)));
  for (; j < n; ++j) out[j] = combine<Kind>(out[j], row[j]);
}

/// Rows shorter than a vector that follow each other: several of them together are as long as a few vectors, folded at the end.
template <monoid Kind, class U>
inline void reduce_short_rows(const U* in, std::int64_t rows, std::int64_t n, U* out, bool accumulate) {
  constexpr int lanes = simd_lanes<U>, most = 4 * lanes;
  const std::int64_t together = most / n, width = together * n;
  U acc[most];
  std::copy_n(in, width, acc);
  std::int64_t i = together;
  for (; i + together <= rows; i += together) combine_row<Kind>(in + i * n, width, acc);
  for (std::int64_t w = n; w < width; ++w) acc[w % n] = combine<Kind>(acc[w % n], acc[w]);
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < n; ++j) acc[j] = combine<Kind>(acc[j], in[i * n + j]);
  for (std::int64_t j = 0; j < n; ++j) out[j] = accumulate ? combine<Kind>(out[j], acc[j]) : acc[j];
}

/// So few rows that they need no parts.
template <monoid Kind, class U>
inline void reduce_few_rows(const U* in, std::int64_t rows, std::int64_t step, std::int64_t n, U* out, bool accumulate) {
  constexpr int lanes = simd_lanes<U>;
  if (n == step && n <= lanes && rows >= 4 * lanes) return reduce_short_rows<Kind>(in, rows, n, out, accumulate);
  std::int64_t i = 0;
  if (!accumulate) {
    std::copy_n(in, n, out);
    i = 1;
  }
  for (; i + 4 <= rows; i += 4) {
    const U *r0 = in + i * step, *r1 = r0 + step, *r2 = r1 + step, *r3 = r2 + step;
    std::int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const auto sum = combine_simd<Kind>(combine_simd<Kind>(load_simd(r0 + j), load_simd(r1 + j)),
                                          combine_simd<Kind>(load_simd(r2 + j), load_simd(r3 + j)));
      store_simd(out + j, combine_simd<Kind>(load_simd<U>(out + j), sum));
    }
    for (; j < n; ++j) out[j] = combine<Kind>(out[j], combine<Kind>(combine<Kind>(r0[j], r1[j]), combine<Kind>(r2[j], r3[j])));
  }
  for (; i < rows; ++i) combine_row<Kind>(in + i * step, n, out);
}

/// A piece of a result that stays in the first cache.
template <class U>
inline constexpr std::int64_t reduced_piece = 8192 / static_cast<std::int64_t>(sizeof(U));

/// reduce_rows for at most reduced_piece columns.
template <monoid Kind, class U>
void reduce_piece_of_rows(const U* in, std::int64_t rows, std::int64_t step, std::int64_t n, U* out, bool accumulate) {
  constexpr int lanes = simd_lanes<U>;
  const auto leaf = most_in_turn * (n == step && n <= lanes ? 4 * lanes / n : 4);
  if (rows <= leaf) return reduce_few_rows<Kind>(in, rows, step, n, out, accumulate);
  const auto part = part_size(rows, leaf);
  U sum[reduced_piece<U>];
  for (std::int64_t i = 0; i < rows; i += part) {
    const bool adds = accumulate || i > 0;
    reduce_piece_of_rows<Kind>(in + i * step, std::min(part, rows - i), step, n, adds ? sum : out, false);
    if (adds) combine_row<Kind>(static_cast<const U*>(sum), n, out);
  }
}

/// out[j] = the reduction of in[i * step + j] over i < rows, for j < n; with `accumulate` also with what out holds. rows, n >= 1.
template <monoid Kind, class U>
inline void reduce_rows(const U* in, std::int64_t rows, std::int64_t step, std::int64_t n, U* out, bool accumulate) {
  for (std::int64_t begin = 0; begin < n; begin += reduced_piece<U>)
    reduce_piece_of_rows<Kind>(in + begin, rows, step, std::min(reduced_piece<U>, n - begin), out + begin, accumulate);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
