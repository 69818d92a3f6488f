// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gspmd/detail/kernels/contraction.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/kernels/small_product.hpp"
#include "gspmd/detail/support/target.hpp"

/// Small products whose extents and strides are compile-time constants. The rows of B stay in registers. A last vector
/// that is not full is loaded and stored whole, if that stays inside the product. The results have the same bits as
/// those of small_products.
///
///   3 x 3 floats      vectors of 4 columns; the fourth column is ignored; the last row is stored as 2 and 1
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// Computes c[i * c_row + j] = the sum over p < k of a[i * a_row + p * a_col] * b[p * b_row + j * b_col].
struct product_shape {
  std::int64_t m = 0, n = 0, k = 0, a_row = 0, a_col = 0, b_row = 0, b_col = 0, c_row = 0;
  friend constexpr bool operator==(const product_shape&, const product_shape&) = default;
};
constexpr product_shape product_shape_of(const contraction_plan& p, std::int64_t k) {
  product_shape s{p.m, p.n, k, p.first_ld, 1, p.second_ld, 1, p.out_ld};
  if (p.transpose_first) std::swap(s.a_row, s.a_col);
  if (p.transpose_second) std::swap(s.b_row, s.b_col);
  return s;
}
/// Returns true if a plan consists of small products that are worth unrolling. A product with more rows of B than
/// registers is not.
template <class T>
constexpr bool is_unrolled(const contraction_plan& p) {
  if (!std::is_floating_point_v<T> || p.is_vector || p.has_phases || p.direct.is_one || p.panel > 0 || p.levels > 0 ||
      p.lhs.reduced || p.lhs.packed || p.rhs.reduced || p.rhs.packed || p.unpacked || p.sums.count != 1 || p.merged_sums != 1 ||
      p.loops.empty() || p.out_elems == 0)
    return false;
  const auto k = p.sums[0].extent;
  return p.m * p.n > 1 && k <= 16 && p.n <= 32 && is_small_product<T>(p.m, p.n, k);
}

/// Returns lanes First, First + 1, ... of v as a shorter vector. Lanes past the end repeat the last one.
template <int First, class V, int... Index>
[[gnu::always_inline]] inline auto lanes_from(const V& v, std::integer_sequence<int, Index...>) {
  constexpr int last = static_cast<int>(sizeof(V) / sizeof(v[0])) - 1;
  return __builtin_shufflevector(v, v, (First + Index < last ? First + Index : last)...);
}
template <int First, int Count, class V>
[[gnu::always_inline]] inline auto some_lanes(const V& v) {
  if constexpr (Count == 1) return v[First];
  else return lanes_from<First>(v, std::make_integer_sequence<int, Count>{});
}
/// Stores the first `Count` of `Lanes` lanes.
template <int Count, int Lanes, class T, class V>
[[gnu::always_inline]] inline void store_first(T* to, const V& v) {
  if constexpr (Count == Lanes) {
    std::memcpy(to, &v, sizeof v);
  } else {
    constexpr int half = Lanes / 2;
    if constexpr (Count < half) {
      store_first<Count, half>(to, some_lanes<0, half>(v));
    } else {
      store_first<half, half>(to, some_lanes<0, half>(v));
      if constexpr (Count > half) store_first<Count - half, half>(to + half, some_lanes<half, half>(v));
    }
  }
}

/// The columns of a product from `First` on.
template <class T, product_shape S, int First = 0>
struct unrolled_columns {
  static constexpr int left = static_cast<int>(S.n) - First;
  static constexpr int lanes = left >= simd_lanes<T> ? simd_lanes<T> : std::bit_ceil(static_cast<unsigned>(left));
  static constexpr int count = left < lanes ? left : lanes;
  static constexpr std::int64_t all_b = (S.k - 1) * S.b_row + S.n;
  using cols =
      typename std::conditional_t<lanes == 1, std::type_identity<T>, short_vector<T, lanes* static_cast<int>(sizeof(T))>>::type;
  // If rows are contiguous, a whole vector may overwrite the begin of the next row. The next row is stored later and
  // begins with these columns.
  static constexpr std::int64_t whole_rows = count == lanes ? S.m : First == 0 && S.c_row == S.n ? S.m - 1 : 0;

  template <int... J>
  [[gnu::always_inline]] static cols gathered(const T* b, std::integer_sequence<int, J...>) {
    return cols{(J < count ? b[J * S.b_col] : T{})...};
  }
  /// Returns row P of B. Lanes from `count` on are arbitrary.
  template <int P>
  [[gnu::always_inline]] static cols row_of(const T* b) {
    constexpr std::int64_t at = P * S.b_row + First * S.b_col, over = lanes - count;
    cols row{};
    if constexpr (S.b_col != 1 || (at + lanes > all_b && at < over)) {
      row = gathered(b + at, std::make_integer_sequence<int, lanes>{});
    } else if constexpr (at + lanes <= all_b) {
      std::memcpy(&row, b + at, sizeof row);
    } else {
      std::memcpy(&row, b + at - over, sizeof row);
      row = some_lanes<over, lanes>(row);
    }
    return row;
  }
  template <int... P>
  [[gnu::always_inline]] static void multiply(const T* a, const T* b, T* c, std::integer_sequence<int, P...>) {
    const cols rows[] = {row_of<P>(b)...};
    const auto sum = [&](std::int64_t r) __attribute__((always_inline)) {
      cols acc{};
      ((acc += a[r * S.a_row + P * S.a_col] * rows[P]), ...);
      return acc;
    };
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < whole_rows; ++r) {
      const auto acc = sum(r);
      std::memcpy(c + r * S.c_row, &acc, sizeof acc);
    }
    for (std::int64_t r = whole_rows; r < S.m; ++r) store_first<count, lanes>(c + r * S.c_row, sum(r));
  }
  [[gnu::always_inline]] static void multiply(const T* a, const T* b, T* c) {
    multiply(a, b, c + First, std::make_integer_sequence<int, static_cast<int>(S.k)>{});
    if constexpr (left > lanes) unrolled_columns<T, S, First + lanes>::multiply(a, b, c);
  }
};

/// run_contraction for a plan that is_unrolled. If a device has fewer terms, or a thread has only some rows of a
/// product, it calls the general function.
template <class T, product_shape S>
void run_unrolled(const contraction_plan& p, const std::int64_t* valid, const void* a, const void* b, void* c, std::byte* scratch,
                  bool adds, bool last) {
  if (adds || !is_unrolled<T>(p) || !is_whole(p, valid) || product_shape_of(p, p.sums[0].extent) != S)
    return run_contraction<T, plain_spec<contraction_plan>>(p, valid, a, b, c, scratch, adds, last);
  const auto& inner = p.loops[p.loops.count - 1];
  const int first = p.is_swapped ? 1 : 0, second = 1 - first;
  const T* const operands[] = {static_cast<const T*>(a) + p.lhs_first, static_cast<const T*>(b)};
  for (odometer<3> at(p.loops.items, p.loops.count - 1); at.is_there; at.step()) {
    const T *left = operands[first] + at.offset[first], *right = operands[second] + at.offset[second];
    T* to = static_cast<T*>(c) + at.offset[2];
    for (std::int64_t s = 0; s < inner.extent;
         ++s, left += inner.stride[first], right += inner.stride[second], to += inner.stride[2])
      unrolled_columns<T, S>::multiply(left, right, to);
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
