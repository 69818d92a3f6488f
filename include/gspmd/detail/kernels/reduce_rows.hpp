// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/ir/sum_parts.hpp"
#include "gspmd/detail/kernels/combine_rows.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// Reductions of a run of neighbours to one element, and of many rows to one row. For each monoid and element type a few inner loops
/// are compiled, reduction_kernel; what is around them counts in bytes, and is compiled once.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The reduction of the lanes of a vector, by halves: one after the other they would wait for each other, 15 times for 16 floats, which of a
/// short row is most of the time.
template <monoid Kind, class U, int Bytes = simd_bytes>
[[gnu::always_inline]] inline U fold_lanes(const typename short_vector<U, Bytes>::type& v) {
  constexpr int lanes = Bytes / static_cast<int>(sizeof(U));
  if constexpr (Bytes > 16) {
    const auto both = [&]<int... L>(std::integer_sequence<int, L...>) __attribute__((always_inline)) {
      return combine_lanes<Kind>(__builtin_shufflevector(v, v, L...), __builtin_shufflevector(v, v, (lanes / 2 + L)...));
    }
    (std::make_integer_sequence<int, lanes / 2>{});
    return fold_lanes<Kind, U, Bytes / 2>(both);
  } else if constexpr (lanes == 4) {
    return combine_lanes<Kind>(combine_lanes<Kind>(v[0], v[2]), combine_lanes<Kind>(v[1], v[3]));
  } else {
    U all = v[0];
    for (int l = 1; l < lanes; ++l) all = combine_lanes<Kind>(all, static_cast<U>(v[l]));
    return all;
  }
}

/// Returns what reduce_long_run leaves of four vectors, in memory. Compilers have stored these by 32 bytes, and longer loads would wait for all of
/// them to reach the cache.
template <monoid Kind, class U>
[[gnu::always_inline]] inline U fold_accumulated(const U* partial) {
  constexpr int bytes = simd_bytes < 32 ? simd_bytes : 32, count = simd_bytes / bytes, lanes = simd_lanes<U>;
  using part = typename short_vector<U, bytes>::type;
  part each[count][4];
  for (int v = 0; v < count; ++v) {
    for (int k = 0; k < 4; ++k) std::memcpy(&each[v][k], partial + k * lanes + v * (lanes / count), sizeof(part));
    each[v][0] = combine_lanes<Kind>(combine_lanes<Kind>(each[v][0], each[v][1]), combine_lanes<Kind>(each[v][2], each[v][3]));
  }
  if constexpr (count > 1) each[0][0] = combine_lanes<Kind>(each[0][0], each[1][0]);
  return fold_lanes<Kind, U, bytes>(each[0][0]);
}

/// A run of neighbours, or a part of one, is reduced to four vectors, which `partial` holds from one part to the next; with `result`, the
/// last part, to one element. All parts but the last one are whole steps of four vectors, and the first one has one at least. Several
/// partial results hide the latency of the operation.
template <monoid Kind, class U>
[[gnu::always_inline]] inline void reduce_long_run(const U* in, std::int64_t n, U* partial, bool is_first, U* result) {
  constexpr int lanes = simd_lanes<U>;
  const U* const from = is_first ? in : partial;
  auto acc = load_simd(from), acc1 = load_simd(from + lanes), acc2 = load_simd(from + 2 * lanes),
       acc3 = load_simd(from + 3 * lanes);
  std::int64_t i = is_first ? 4 * lanes : 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    acc = combine_lanes<Kind>(acc, load_simd(in + i));
    acc1 = combine_lanes<Kind>(acc1, load_simd(in + i + lanes));
    acc2 = combine_lanes<Kind>(acc2, load_simd(in + i + 2 * lanes));
    acc3 = combine_lanes<Kind>(acc3, load_simd(in + i + 3 * lanes));
  }
  if (result == nullptr) {
    store_simd(partial, acc);
    store_simd(partial + lanes, acc1);
    store_simd(partial + 2 * lanes, acc2);
    store_simd(partial + 3 * lanes, acc3);
    return;
  }
  acc = combine_lanes<Kind>(combine_lanes<Kind>(acc, acc1), combine_lanes<Kind>(acc2, acc3));
  for (; i + lanes <= n; i += lanes) acc = combine_lanes<Kind>(acc, load_simd(in + i));
  U all = fold_lanes<Kind, U>(acc);
  for (; i < n; ++i) all = combine_lanes<Kind>(all, in[i]);
  *result = all;
}
template <monoid Kind, class U>
void reduce_part(const void* in, std::int64_t n, void* partial, bool is_first, void* result) {
  reduce_long_run<Kind>(static_cast<const U*>(in), n, static_cast<U*>(partial), is_first, static_cast<U*>(result));
}

/// The reduction of so few neighbours that they need no parts.
template <monoid Kind, class U>
inline U reduce_run(const U* in, std::int64_t n) {
  constexpr int lanes = simd_lanes<U>;
  std::int64_t i = 1;
  U result = in[0];
  if (n >= 4 * lanes) {
    reduce_long_run<Kind>(in, n, static_cast<U*>(nullptr), true, &result);
    return result;
  }
  if (n >= 2 * lanes) {
    auto acc = load_simd(in);
    for (i = lanes; i + lanes <= n; i += lanes) acc = combine_lanes<Kind>(acc, load_simd(in + i));
    result = fold_lanes<Kind, U>(acc);
  }
  for (; i < n; ++i) result = combine_lanes<Kind>(result, in[i]);
  return result;
}

/// Reduces the run of every o < outer; short runs by four, each in the order of reduce_run: how many there are then hardly costs anything
/// where it is not a constant.
template <monoid Kind, class U>
void reduce_runs(const void* from, std::int64_t outer, std::int64_t step, std::int64_t n, void* to) {
  const U* const in = static_cast<const U*>(from);
  U* const out = static_cast<U*>(to);
  std::int64_t o = 0;
  if (n < 2 * simd_lanes<U>)
    for (; o + 4 <= outer; o += 4) {
      const U *r0 = in + o * step, *r1 = r0 + step, *r2 = r1 + step, *r3 = r2 + step;
      U a = r0[0], b = r1[0], c = r2[0], d = r3[0];
      for (std::int64_t i = 1; i < n; ++i) {
        a = combine_lanes<Kind>(a, r0[i]);
        b = combine_lanes<Kind>(b, r1[i]);
        c = combine_lanes<Kind>(c, r2[i]);
        d = combine_lanes<Kind>(d, r3[i]);
      }
      out[o] = a;
      out[o + 1] = b;
      out[o + 2] = c;
      out[o + 3] = d;
    }
  for (; o < outer; ++o) out[o] = reduce_run<Kind>(in + o * step, n);
}

/// Rows shorter than a vector that follow each other: several of them together are as long as a few vectors, folded at the end.
template <monoid Kind, class U>
inline void reduce_short_rows(const U* in, std::int64_t rows, std::int64_t n, U* out, bool accumulate) {
  constexpr int lanes = simd_lanes<U>, most = 4 * lanes;
  const std::int64_t together = most / n, width = together * n;
  U acc[most];
  std::copy_n(in, width, acc);
  std::int64_t i = together;
  for (; i + together <= rows; i += together) combine_rows<Kind, U>(acc, acc, acc, in + i * n, width);
  for (std::int64_t w = n; w < width; ++w) acc[w % n] = combine_lanes<Kind>(acc[w % n], acc[w]);
  for (; i < rows; ++i)
    for (std::int64_t j = 0; j < n; ++j) acc[j] = combine_lanes<Kind>(acc[j], in[i * n + j]);
  for (std::int64_t j = 0; j < n; ++j) out[j] = accumulate ? combine_lanes<Kind>(out[j], acc[j]) : acc[j];
}

/// Whether many rows are reduced several together.
inline bool are_short_rows(std::int64_t lanes, std::int64_t step, std::int64_t n) { return n == step && n <= lanes; }

/// So few rows that they need no parts.
template <monoid Kind, class U>
void reduce_few_rows(const void* from, std::int64_t rows, std::int64_t step, std::int64_t n, void* to, bool accumulate) {
  constexpr int lanes = simd_lanes<U>;
  const U* const in = static_cast<const U*>(from);
  U* const out = static_cast<U*>(to);
  if (are_short_rows(lanes, step, n) && rows >= 4 * lanes) return reduce_short_rows<Kind>(in, rows, n, out, accumulate);
  std::int64_t i = 0;
  if (!accumulate) {
    std::copy_n(in, n, out);
    i = 1;
  }
  for (; i + 4 <= rows; i += 4) {
    const U *r0 = in + i * step, *r1 = r0 + step, *r2 = r1 + step, *r3 = r2 + step;
    std::int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const auto sum = combine_lanes<Kind>(combine_lanes<Kind>(load_simd(r0 + j), load_simd(r1 + j)),
                                           combine_lanes<Kind>(load_simd(r2 + j), load_simd(r3 + j)));
      store_simd(out + j, combine_lanes<Kind>(load_simd<U>(out + j), sum));
    }
    for (; j < n; ++j)
      out[j] =
          combine_lanes<Kind>(out[j], combine_lanes<Kind>(combine_lanes<Kind>(r0[j], r1[j]), combine_lanes<Kind>(r2[j], r3[j])));
  }
  for (; i < rows; ++i) combine_rows<Kind, U>(out, out, out, in + i * step, n);
}

/// Reductions that programs seldom have: integers by anything but a sum, and products. One vector at a time.
template <monoid Kind, class U>
void reduce_rare_part(const void* from, std::int64_t n, void* partial, bool is_first, void* to) {
  constexpr int lanes = simd_lanes<U>;
  const U* const in = static_cast<const U*>(from);
  auto acc = load_simd(is_first ? in : static_cast<const U*>(partial));
  std::int64_t i = is_first ? lanes : 0;
  for (; i + lanes <= n; i += lanes) acc = combine_lanes<Kind>(acc, load_simd(in + i));
  if (to == nullptr) return store_simd(static_cast<U*>(partial), acc);
  U each[lanes];
  store_simd(each, acc);
  U result = each[0];
  for (int l = 1; l < lanes; ++l) result = combine_lanes<Kind>(result, each[l]);
  for (; i < n; ++i) result = combine_lanes<Kind>(result, in[i]);
  *static_cast<U*>(to) = result;
}
template <monoid Kind, class U>
void reduce_rare_runs(const void* from, std::int64_t outer, std::int64_t step, std::int64_t n, void* to) {
  for (std::int64_t o = 0; o < outer; ++o) {
    const U* const in = static_cast<const U*>(from) + o * step;
    U* const out = static_cast<U*>(to) + o;
    if (n > simd_lanes<U>) {
      reduce_rare_part<Kind, U>(in, n, nullptr, true, out);
      continue;
    }
    U result = in[0];
    for (std::int64_t i = 1; i < n; ++i) result = combine_lanes<Kind>(result, in[i]);
    *out = result;
  }
}
template <monoid Kind, class U>
void reduce_rare_rows(const void* from, std::int64_t rows, std::int64_t step, std::int64_t n, void* out, bool accumulate) {
  const U* const in = static_cast<const U*>(from);
  if (!accumulate) std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(U));
  for (std::int64_t i = accumulate ? 0 : 1; i < rows; ++i) combine_rows<Kind, U>(out, out, out, in + i * step, n);
}

/// Reductions that are under way, of what a loop computes: four vectors each, as reduce_long_run has them, and how they begin.
struct partial_reductions {
  static constexpr std::size_t most = 4;
  struct vectors {
    alignas(cache_line_bytes) std::byte bytes[4 * cache_line_bytes];
  };
  vectors now[most], neutral[most];
  std::int64_t run, left;          // so many elements are reduced to the vectors, and are left of those
  bool is_whole;                   // they are all of a run,
  void (*end_run)(void* context);  // after which this is called
  void* context;

  /// To be called before some elements of a run are reduced, and with how many they were, of so many reductions.
  void begin_some(std::size_t count) {
    if (left == run)
      for (std::size_t k = 0; k < count; ++k) now[k] = neutral[k];
  }
  void end_some(std::int64_t n) {
    left -= n;
    if (left > 0) return;
    if (is_whole) end_run(context);
    left = run;
  }
};
/// Sums of a type of the user's own, in order.
template <class T>
void reduce_own_runs(const void* from, std::int64_t outer, std::int64_t step, std::int64_t n, void* to) {
  for (std::int64_t o = 0; o < outer; ++o) {
    const T* const in = static_cast<const T*>(from) + o * step;
    T sum = in[0];
    for (std::int64_t i = 1; i < n; ++i) sum = static_cast<T>(sum + in[i]);
    static_cast<T*>(to)[o] = sum;
  }
}
template <class T>
void reduce_own_rows(const void* from, std::int64_t rows, std::int64_t step, std::int64_t n, void* out, bool accumulate) {
  const T* const in = static_cast<const T*>(from);
  if (!accumulate) std::copy_n(in, n, static_cast<T*>(out));
  for (std::int64_t i = accumulate ? 0 : 1; i < rows; ++i) combine_own_rows<T>(out, out, out, in + i * step, n);
}

/// The code that is compiled for a monoid and an element type.
struct reduction_kernel {
  std::int64_t elem_bytes, lanes;
  row_combiner::function combine;
  /// out[o] = the reduction of the `n` neighbours from in[o * step] on, for every o < outer.
  void (*runs)(const void* in, std::int64_t outer, std::int64_t step, std::int64_t n, void* out);
  /// out[j] = the reduction of in[i * step + j] over i < rows, for j < n; with `accumulate` also with what out holds.
  void (*rows)(const void* in, std::int64_t rows, std::int64_t step, std::int64_t n, void* out, bool accumulate);
  /// A part of such a run, which has four vectors or more; all parts but the last, which has a result, are whole steps of four.
  void (*part)(const void* in, std::int64_t n, void* partial, bool is_first, void* result);
  std::array<std::byte, most_elem_bytes> identity;  // of which the first elem_bytes count
  std::array<std::byte, most_elem_bytes>
      neutral;  // likewise; changes no bits of what it is combined with: of sums of floats -0.0
};
template <monoid Kind, class T>
inline constexpr reduction_kernel reduction_kernel_of = [] {
  using u = combined_t<Kind, T>;
  if constexpr (own_element<T>) {  // the identity has no bits that are set; nothing is computed on the way
    return reduction_kernel{sizeof(T), 1, combine_own_rows<T>, reduce_own_runs<T>, reduce_own_rows<T>, nullptr, {}, {}};
  } else {
    constexpr bool is_rare = Kind == monoid::multiply || (std::is_integral_v<T> && Kind != monoid::add);
    reduction_kernel kernel{sizeof(u), simd_lanes<u>, combine_rows<Kind, u>, nullptr, nullptr, nullptr, {}, {}};
    if constexpr (is_rare) {
      kernel.runs = reduce_rare_runs<Kind, u>;
      kernel.rows = reduce_rare_rows<Kind, u>;
      kernel.part = reduce_rare_part<Kind, u>;
    } else {
      kernel.runs = reduce_runs<Kind, u>;
      kernel.rows = reduce_few_rows<Kind, u>;
      kernel.part = reduce_part<Kind, u>;
    }
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(u)>>(static_cast<u>(identity<T>(Kind)));
    u neutral = static_cast<u>(identity<T>(Kind));
    if constexpr (Kind == monoid::add && std::is_floating_point_v<u>) neutral = u(-0.0);
    const auto neutral_bytes = std::bit_cast<std::array<std::byte, sizeof(u)>>(neutral);
    for (std::size_t i = 0; i < sizeof(u); ++i) {
      kernel.identity[i] = bytes[i];
      kernel.neutral[i] = neutral_bytes[i];
    }
    return kernel;
  }
}();

/// The source of a reduction's elements, here an array. It is never asked for more than the reduction folds at once. Other sources compute
/// their elements (kernels/computed_reduction.hpp), by the same algorithms and so with the same bits.
struct stored_elements {
  const reduction_kernel& kernel;

  using position = const std::byte*;  // offsets are in bytes
  using results = std::byte*;
  template <std::int64_t Bytes>
  struct room {
    alignas(cache_line_bytes) std::byte bytes[Bytes];
    results get() { return bytes; }
  };
  [[nodiscard]] std::int64_t elem_bytes() const { return kernel.elem_bytes; }
  [[nodiscard]] std::int64_t lanes() const { return kernel.lanes; }
  /// So many columns of rows are reduced at once.
  [[nodiscard]] std::int64_t piece() const { return reduced_piece_bytes / kernel.elem_bytes; }
  void lie_together(std::int64_t, std::int64_t, std::int64_t) const {}
  void runs(position in, std::int64_t outer, std::int64_t step, std::int64_t n, results out) const {
    kernel.runs(in, outer, step, n, out);
  }
  void rows(position in, std::int64_t rows, std::int64_t step, std::int64_t n, results out, bool accumulate) const {
    kernel.rows(in, rows, step, n, out, accumulate);
  }
  void combine(results out, results with, std::int64_t n) const { kernel.combine(out, out, out, with, n); }
};

/// out = the reduction of `n` neighbours, n >= 1.
template <class Source>
void reduce_contiguous(Source& source, typename Source::position in, std::int64_t n, typename Source::results out) {
  const auto leaf = most_in_turn * 4 * source.lanes();
  if (n <= leaf) return source.runs(in, 1, 0, n, out);
  const auto part = part_size(n, leaf);
  typename Source::template room<most_elem_bytes> sum;
  for (std::int64_t i = 0; i < n; i += part) {
    reduce_contiguous(source, in + i * source.elem_bytes(), std::min(part, n - i), i == 0 ? out : sum.get());
    if (i > 0) source.combine(out, sum.get(), 1);
  }
}

/// out[o] = the reduction of the `n` neighbours from in[o * step] on, for every o < outer.
template <class Source>
void reduce_each(Source& source, typename Source::position in, std::int64_t outer, std::int64_t step, std::int64_t n,
                 typename Source::results out) {
  if (n <= most_in_turn * 4 * source.lanes()) return source.runs(in, outer, step, n, out);
  for (std::int64_t o = 0; o < outer; ++o)
    reduce_contiguous(source, in + o * step * source.elem_bytes(), n, out + o * source.elem_bytes());
}

/// So many rows need no parts.
inline std::int64_t rows_in_turn(std::int64_t lanes, std::int64_t step, std::int64_t n) {
  return most_in_turn * (are_short_rows(lanes, step, n) ? 4 * lanes / n : 4);
}

/// reduce_rows for at most a piece of columns.
template <class Source>
[[gnu::noinline]] void reduce_piece_of_rows(Source& source, typename Source::position in, std::int64_t rows, std::int64_t step,
                                            std::int64_t n, typename Source::results out, bool accumulate) {
  const auto leaf = rows_in_turn(source.lanes(), step, n);
  if (rows <= leaf) return source.rows(in, rows, step, n, out, accumulate);
  const auto part = part_size(rows, leaf);
  typename Source::template room<reduced_piece_bytes> sum;
  for (std::int64_t i = 0; i < rows; i += part) {
    const bool adds = accumulate || i > 0;
    reduce_piece_of_rows(source, in + i * step * source.elem_bytes(), std::min(part, rows - i), step, n, adds ? sum.get() : out,
                         false);
    if (adds) source.combine(out, sum.get(), n);
  }
}

/// out[j] = the reduction of in[i * step + j] over i < rows, for j < n; with `accumulate` also with what out holds. rows, n >= 1.
template <class Source>
void reduce_rows(Source& source, typename Source::position in, std::int64_t rows, std::int64_t step, std::int64_t n,
                 typename Source::results out, bool accumulate) {
  const auto piece = source.piece();
  if (n <= piece && rows <= 4 * most_in_turn) return source.rows(in, rows, step, n, out, accumulate);  // rows_in_turn has more
  for (std::int64_t begin = 0; begin < n; begin += piece)
    reduce_piece_of_rows(source, in + begin * source.elem_bytes(), rows, step, std::min(piece, n - begin),
                         out + begin * source.elem_bytes(), accumulate);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
