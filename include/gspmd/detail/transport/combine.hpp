// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/kernels/lanes.hpp"
#include "gspmd/detail/support/target.hpp"
#include "gspmd/detail/transport/box.hpp"
#include "gspmd/error.hpp"

/// Combining rows of several buffers by a monoid, always in the order of the sources: every backend and every device gets
/// the same bits. A monoid is a function `into(a, b)` that leaves the result in `a`, for one element or a whole lane.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct add_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a + b;
  }
};
struct multiply_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a * b;
  }
};
// a NaN on either side wins, so that the order of the operands does not show
struct maximum_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    const V larger = a > b ? a : b;
    a = a == a ? larger : a;  // NOLINT(misc-redundant-expression): false for a NaN
  }
};
struct minimum_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    const V smaller = a < b ? a : b;
    a = a == a ? smaller : a;  // NOLINT(misc-redundant-expression)
  }
};
struct maximum_integer_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a > b ? a : b;
  }
};
struct minimum_integer_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a < b ? a : b;
  }
};
struct and_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a & b;
  }
};
struct or_monoid {
  template <class V>
  static void into(V& a, const V& b) {
    a = a | b;
  }
};

/// out[i] = a[i] op b[i], and the same into `also`; either may be `a` or `b` itself, or both the same buffer.
template <class Monoid, bool Streaming, class E, int Lanes = 2>
inline void combine_rows(E* out, E* also, const E* a, const E* b, std::int64_t n) {
  using lane = typename lanes<E>::type;
  constexpr std::int64_t step = lane_elems<E>;
  const auto scalars = [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      E value = a[i];
      Monoid::template into<E>(value, b[i]);
      out[i] = value;
      also[i] = value;
    }
  };
  const auto vectors = [&](std::int64_t i, auto count) {
    lane x[count()], y[count()];
    for (int k = 0; k < count(); ++k) load(x[k], a + i + k * step);
    for (int k = 0; k < count(); ++k) load(y[k], b + i + k * step);
    for (int k = 0; k < count(); ++k) Monoid::into(x[k], y[k]);
    for (int k = 0; k < count(); ++k) {
      if constexpr (Streaming) stream(out + i + k * step, x[k]);
      else store(out + i + k * step, x[k]);
    }
    if (also != out)
      for (int k = 0; k < count(); ++k) store(also + i + k * step, x[k]);
  };
  std::int64_t i = 0;
  if constexpr (Streaming) {
    i = elements_to_alignment(out);
    i = i < n ? i : n;
    scalars(0, i);
  }
  if constexpr (Lanes > 1)
    for (; i + Lanes * step <= n; i += Lanes * step) vectors(i, std::integral_constant<int, Lanes>{});
  for (; i + step <= n; i += step) vectors(i, std::integral_constant<int, 1>{});
  scalars(i, n);
}

/// Small enough to stay in the first-level cache next to a source.
inline constexpr std::int64_t reduce_block_bytes = 4096;

/// out = source(0) op source(1) op ... of `n` >= 2 rows; `out` is none of the sources. source(j) is a row's first element.
template <class Monoid, class E, class Source>
inline void reduce_row(E* out, std::int64_t n, Source source, std::int64_t elems, bool streaming) {
  if constexpr (std::is_same_v<Monoid, add_monoid>)  // the others are not worth their compile time
    if (n == 2 && streaming) return combine_rows<Monoid, true>(out, out, source(0), source(1), elems);
  constexpr std::int64_t block = reduce_block_bytes / static_cast<std::int64_t>(sizeof(E));
  for (std::int64_t begin = 0; begin < elems; begin += block) {
    const auto count = elems - begin < block ? elems - begin : block;
    E* const part = out + begin;
    combine_rows<Monoid, false>(part, part, source(0) + begin, source(1) + begin, count);
    for (std::int64_t j = 2; j < n; ++j) combine_rows<Monoid, false, E>(part, part, part, source(j) + begin, count);
  }
}

/// The same into a row of each of the `n` members; target(j) may be source(j).
template <class Monoid, class E, class Source, class Target>
inline void reduce_row_to_all(std::int64_t n, Source source, Target target, std::int64_t elems) {
  if (n == 2) return combine_rows<Monoid, false>(target(0), target(1), source(0), source(1), elems);
  constexpr std::int64_t block = reduce_block_bytes / static_cast<std::int64_t>(sizeof(E));
  alignas(cache_line_bytes) E sum[block];
  for (std::int64_t begin = 0; begin < elems; begin += block) {
    const auto count = elems - begin < block ? elems - begin : block;
    reduce_row<Monoid, E>(
        sum, n, [&](std::int64_t j) { return source(j) + begin; }, count, false);
    for (std::int64_t j = 0; j < n; ++j) copy_row(target(j) + begin, sum, count);
  }
}

/// Calls `body(monoid, element)` with the type that does `kind` on elements of type T, and a value of the type to do it in:
/// integers wrap around, and bool is a byte.
template <class T, class Body>
inline void with_monoid(monoid kind, Body body) {
  if constexpr (std::is_same_v<T, bool>) {
    using byte = unsigned char;
    if (kind == monoid::and_ || kind == monoid::minimum || kind == monoid::multiply) return body(and_monoid{}, byte{});
    return body(or_monoid{}, byte{});
  } else if constexpr (std::is_floating_point_v<T>) {
    switch (kind) {
      case monoid::add: return body(add_monoid{}, T{});
      case monoid::multiply: return body(multiply_monoid{}, T{});
      case monoid::maximum: return body(maximum_monoid{}, T{});
      case monoid::minimum: return body(minimum_monoid{}, T{});
      case monoid::and_:
      case monoid::or_: break;
    }
    throw error("and, or reduce booleans and integers, not floating-point numbers");
  } else {
    using natural = std::make_unsigned_t<T>;
    switch (kind) {
      case monoid::add: return body(add_monoid{}, natural{});
      case monoid::multiply: return body(multiply_monoid{}, natural{});
      case monoid::maximum: return body(maximum_integer_monoid{}, T{});
      case monoid::minimum: return body(minimum_integer_monoid{}, T{});
      case monoid::and_: return body(and_monoid{}, natural{});
      case monoid::or_: return body(or_monoid{}, natural{});
    }
  }
}

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
