// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/fused_loop.hpp"
#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/precompiled.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// The code that combines rows, compiled for an element type and a monoid. Code that uses a row_combiner is compiled
/// once for all types.
struct row_combiner {
  /// Sums of narrow floats. If there are more than two rows, they are added in float and the sum is rounded once.
  struct wide_sums {
    void (*begin)(float* sum, const void* row, std::int64_t n);
    void (*add)(float* sum, const void* row, std::int64_t n);
    void (*end)(const float* sum, void* out, std::int64_t n);
  };
  /// Computes out[i] = also[i] = a[i] op b[i]. `out` and `also` may each be `a` or `b`, or both the same buffer.
  using function = void (*)(void* out, void* also, const void* a, const void* b, std::int64_t n);
  std::int64_t elem_bytes;
  function combine;
  function stream;  // combine with streaming stores to `out`; null if that is not compiled
  const wide_sums* wide = nullptr;
};

inline namespace GSPMD_TARGET {

/// Combines rows of elements E without conversion, `Vectors` vectors per iteration.
template <monoid Kind, class E, bool Streaming = false, int Vectors = 2>
void combine_rows(void* to, void* also_to, const void* from_a, const void* from_b, std::int64_t n) {
  constexpr std::int64_t step = simd_lanes<E>;
  E *const out = static_cast<E*>(to), *const also = static_cast<E*>(also_to);
  const E *const a = static_cast<const E*>(from_a), *const b = static_cast<const E*>(from_b);
  const auto scalars = [&](std::int64_t from, std::int64_t end) {
    for (std::int64_t i = from; i < end; ++i) out[i] = also[i] = combine_lanes<Kind>(a[i], b[i]);
  };
  const auto vectors = [&](std::int64_t i, auto count) {
    simd<E> x[count()], y[count()];
    for (int k = 0; k < count(); ++k) x[k] = load_simd(a + i + k * step);
    for (int k = 0; k < count(); ++k) y[k] = load_simd(b + i + k * step);
    for (int k = 0; k < count(); ++k) x[k] = combine_lanes<Kind>(x[k], y[k]);
    for (int k = 0; k < count(); ++k) {
      if constexpr (Streaming) stream_simd(out + i + k * step, x[k]);
      else store_simd(out + i + k * step, x[k]);
    }
    if (also != out)
      for (int k = 0; k < count(); ++k) store_simd(also + i + k * step, x[k]);
  };
  std::int64_t i = 0;
  if constexpr (Streaming) {
    i = elements_to_alignment(out);
    i = i < n ? i : n;
    scalars(0, i);
  }
  if constexpr (Vectors > 1)
    for (; i + Vectors * step <= n; i += Vectors * step) vectors(i, std::integral_constant<int, Vectors>{});
  for (; i + step <= n; i += step) vectors(i, std::integral_constant<int, 1>{});
  scalars(i, n);
}

/// Adds rows of an own type.
template <class T>
[[gnu::noinline]] void combine_own_rows(void* to, void* also_to, const void* from_a, const void* from_b, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    static_cast<T*>(to)[i] = static_cast<T*>(also_to)[i] =
        static_cast<T>(static_cast<const T*>(from_a)[i] + static_cast<const T*>(from_b)[i]);
}

template <monoid Kind, class T>
[[gnu::noinline]] void combine_narrow_rows(void* to, void* also_to, const void* from_a, const void* from_b, std::int64_t n) {
  for_each_index(
      n, [=](std::int64_t i) __attribute__((always_inline)) {
        const T x(combine_lanes<Kind>(static_cast<float>(static_cast<const T*>(from_a)[i]),
                                      static_cast<float>(static_cast<const T*>(from_b)[i])));
        static_cast<T*>(to)[i] = x;
        static_cast<T*>(also_to)[i] = x;
      });
}
template <monoid Kind, class T>
inline constexpr row_combiner::wide_sums wide_sums_of = {[](float* sum, const void* row, std::int64_t n) {
                                                           for (std::int64_t i = 0; i < n; ++i)
                                                             sum[i] = static_cast<const T*>(row)[i];
                                                         },
                                                         [](float* sum, const void* row, std::int64_t n) {
                                                           for (std::int64_t i = 0; i < n; ++i)
                                                             sum[i] = combine_lanes<Kind>(
                                                                 sum[i], static_cast<float>(static_cast<const T*>(row)[i]));
                                                         },
                                                         [](const float* sum, void* out, std::int64_t n) {
                                                           for (std::int64_t i = 0; i < n; ++i)
                                                             static_cast<T*>(out)[i] = T(sum[i]);
                                                         }};

/// Returns the functions for elements of type T. Throws gspmd::error if `kind` is not defined on T. Only sums are
/// streamed, because streaming of other monoids is not worth the compile time.
template <class T>
row_combiner combiner_of(monoid kind) {
  return with_monoid(kind, [](auto given) -> row_combiner {
    constexpr monoid natural = natural_kind<T>(decltype(given)::value);
    if constexpr (!monoid_is_defined<T>(natural)) {
      throw error("and, or reduce booleans and integers, not floating-point numbers");
    } else if constexpr (own_element<T>) {
      return {sizeof(T), combine_own_rows<T>, nullptr};
    } else if constexpr (is_narrow_float<T>) {
      return {sizeof(T), combine_narrow_rows<natural, T>, nullptr, &wide_sums_of<natural, T>};
    } else {
      using e = combined_t<natural, T>;
      row_combiner::function stream = nullptr;
      if constexpr (natural == monoid::add) stream = combine_rows<natural, e, true>;
      return {sizeof(e), combine_rows<natural, e>, stream};
    }
  });
}

/// Does the same for an element type that is known at run time. It must be neither complex nor an own type.
template <class = once>
row_combiner combiner_at(dtype type, monoid kind);

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail

#if defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/kernels/combine_rows_instances.ipp"
#endif

#if !defined(GSPMD_PRECOMPILED)
#include "gspmd/detail/kernels/combine_rows.ipp"
#endif
