// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/monoid_ops.hpp"
#include "gspmd/detail/kernels/simd.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/error.hpp"

namespace gspmd::detail {

/// What is compiled for an element type and a monoid to combine rows; whatever uses it is compiled once for all of them.
struct row_combiner {
  /// out[i] = also[i] = a[i] op b[i]; either may be `a` or `b` itself, or both the same buffer.
  using function = void (*)(void* out, void* also, const void* a, const void* b, std::int64_t n);
  std::int64_t elem_bytes;
  function combine;
  function stream;  // the same past the caches, or null
};

inline namespace GSPMD_TARGET {

/// For elements of type E of kernel arithmetic, so many vectors at once.
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

/// For elements of type T; throws where `kind` is not defined on them. Sums alone are streamed: the others are not worth their
/// compile time.
template <class T, int Vectors = 2>
row_combiner combiner_of(monoid kind) {
  return with_monoid(kind, [](auto given) -> row_combiner {
    constexpr monoid natural = natural_kind<T>(decltype(given)::value);
    if constexpr (!monoid_is_defined<T>(natural)) {
      throw error("and, or reduce booleans and integers, not floating-point numbers");
    } else {
      using e = combined_t<natural, T>;
      row_combiner::function stream = nullptr;
      if constexpr (natural == monoid::add && Vectors > 1) stream = combine_rows<natural, e, true>;
      return {sizeof(e), combine_rows<natural, e, false, Vectors>, stream};
    }
  });
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
