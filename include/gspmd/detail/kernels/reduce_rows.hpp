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

/// Reductions of a run of contiguous elements to one element, and of many rows to one row. A few inner loops are
/// compiled for each monoid and element type (reduction_kernel). The code around them counts in bytes and is compiled
/// once.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Reduces the lanes of a vector by halving. A sequential reduction would be a chain of 15 dependent operations for 16
/// floats, most of the time of a short row.
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

/// Reduces the four vectors of reduce_long_run, in memory, to one element. Compilers stored these vectors in pieces of
/// 32 bytes. A longer load would wait until all pieces are in the cache.
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

/// Reduces a run of contiguous elements, or a part of a run, to four vectors. `partial` holds them between parts. In
/// the last part `result` is not null, and the run is reduced to one element. All other parts are multiples of four
/// vectors, and the first part has at least four vectors. Several accumulators hide the latency of the operation.
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

/// Reduces contiguous elements, for an n so small that no parts are needed.
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

/// Reduces the run of each o < outer. Short runs are reduced four at a time, each in the order of reduce_run. Then the
/// length of a run costs little even if it is not a compile-time constant.
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

/// Reduces contiguous rows that are shorter than a vector. Several rows together fill a few vectors, which are folded
/// at the end.
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

/// Returns true if several rows are reduced together.
inline bool are_short_rows(std::int64_t lanes, std::int64_t step, std::int64_t n) { return n == step && n <= lanes; }

/// Reduces rows, for a number of rows so small that no parts are needed.
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

/// Rare reductions: products, and integers by any monoid except the sum. They use one vector at a time.
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

/// Reductions of values that a loop is computing: four vectors each, as in reduce_long_run, and their initial values.
struct partial_reductions {
  static constexpr std::size_t most = 4;
  struct vectors {
    alignas(cache_line_bytes) std::byte bytes[4 * cache_line_bytes];
  };
  vectors now[most], neutral[most];
  std::int64_t run, left;          // number of elements per run that are reduced to the vectors; number that are left
  bool is_whole;                   // true: a run has no other elements,
  void (*end_run)(void* context);  // and end_run is called after each run
  void* context;

  /// begin_some must be called before some elements of a run are reduced into `count` reductions. Afterwards, end_some
  /// must be called with the number of elements.
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
/// Sums of own types, in order.
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
  /// Computes out[o] = the reduction of `n` contiguous elements from in[o * step] on, for every o < outer.
  void (*runs)(const void* in, std::int64_t outer, std::int64_t step, std::int64_t n, void* out);
  /// Computes out[j] = the reduction of in[i * step + j] over i < rows, for j < n. If `accumulate`, also combines with
  /// the old out[j].
  void (*rows)(const void* in, std::int64_t rows, std::int64_t step, std::int64_t n, void* out, bool accumulate);
  /// Reduces a part of a run; the run has at least four vectors. All parts except the last one are multiples of four
  /// vectors. Only the last part has a result.
  void (*part)(const void* in, std::int64_t n, void* partial, bool is_first, void* result);
  std::array<std::byte, most_elem_bytes> identity;  // only the first elem_bytes are used
  std::array<std::byte, most_elem_bytes>
      neutral;  // likewise; does not change the bits of the other operand: -0.0 for sums of floats
};
template <monoid Kind, class T>
inline constexpr reduction_kernel reduction_kernel_of = [] {
  using u = combined_t<Kind, T>;
  if constexpr (own_element<T>) {  // all bits of the identity are 0, and nothing is computed while a loop runs
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

/// The source of the elements of a reduction, here an array. The reduction requests only the elements that it folds in
/// one call. Another source computes its elements (kernels/computed_reduction.hpp). All sources use the same
/// algorithms and so give the same bits.
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
  /// Returns the number of columns that are reduced together.
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

/// Computes out = the reduction of `n` contiguous elements, n >= 1.
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

/// Computes out[o] = the reduction of `n` contiguous elements from in[o * step] on, for every o < outer.
template <class Source>
void reduce_each(Source& source, typename Source::position in, std::int64_t outer, std::int64_t step, std::int64_t n,
                 typename Source::results out) {
  if (n <= most_in_turn * 4 * source.lanes()) return source.runs(in, outer, step, n, out);
  for (std::int64_t o = 0; o < outer; ++o)
    reduce_contiguous(source, in + o * step * source.elem_bytes(), n, out + o * source.elem_bytes());
}

/// Returns the number of rows that are reduced without parts.
inline std::int64_t rows_in_turn(std::int64_t lanes, std::int64_t step, std::int64_t n) {
  return most_in_turn * (are_short_rows(lanes, step, n) ? 4 * lanes / n : 4);
}

/// reduce_rows for at most one piece of columns.
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

/// Computes out[j] = the reduction of in[i * step + j] over i < rows, for j < n. If `accumulate`, also combines with
/// the old out[j]. rows, n >= 1.
template <class Source>
void reduce_rows(Source& source, typename Source::position in, std::int64_t rows, std::int64_t step, std::int64_t n,
                 typename Source::results out, bool accumulate) {
  const auto piece = source.piece();
  if (n <= piece && rows <= 4 * most_in_turn) return source.rows(in, rows, step, n, out, accumulate);  // at most rows_in_turn
  for (std::int64_t begin = 0; begin < n; begin += piece)
    reduce_piece_of_rows(source, in + begin * source.elem_bytes(), rows, step, std::min(piece, n - begin),
                         out + begin * source.elem_bytes(), accumulate);
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
