// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <type_traits>

#include "gspmd/detail/ir/types.hpp"

/// The reductions on single elements and on vectors of elements. Local kernels, communicators and the law of a user's
/// operator share this header.
namespace gspmd::detail {

/// Returns true if `kind` is defined on elements of type T. Bitwise operations are undefined on floats, and sums on
/// bool.
template <class T>
constexpr bool monoid_is_defined(monoid kind) {
  const bool bitwise = kind == monoid::and_ || kind == monoid::or_;
  if (is_complex_element<listed_element_t<T>> || own_element<T>) return kind == monoid::add;
  if (is_float_element<T>) return !bitwise;
  if (std::is_same_v<T, bool>) return bitwise || kind == monoid::max || kind == monoid::min;
  return true;
}

/// Calls f(std::integral_constant<monoid, Kind>{}).
template <class F>
constexpr decltype(auto) with_monoid(monoid kind, F&& f) {
  switch (kind) {
    case monoid::add: return f(std::integral_constant<monoid, monoid::add>{});
    case monoid::multiply: return f(std::integral_constant<monoid, monoid::multiply>{});
    case monoid::max: return f(std::integral_constant<monoid, monoid::max>{});
    case monoid::min: return f(std::integral_constant<monoid, monoid::min>{});
    case monoid::and_: return f(std::integral_constant<monoid, monoid::and_>{});
    case monoid::or_: break;
  }
  return f(std::integral_constant<monoid, monoid::or_>{});
}

/// Returns the identity element, which is also the reduction of no elements. If T does not have this kind, returns T{}.
template <own_element T>
constexpr T identity(monoid) {
  return T{};
}
template <class T>
constexpr T identity(monoid kind) {
  using limits = std::numeric_limits<T>;
  switch (kind) {
    case monoid::add:
    case monoid::or_: return T{};
    case monoid::multiply: return T(1.0F);
    case monoid::and_:
      if constexpr (std::is_same_v<T, bool>) return true;
      else if constexpr (std::is_integral_v<T>) return static_cast<T>(~T{});
      else return T{};
    case monoid::max:
      if constexpr (limits::has_infinity) return T(-limits::infinity());
      else return limits::lowest();
    case monoid::min:
      if constexpr (limits::has_infinity) return limits::infinity();
      else return limits::max();
  }
  return T{};
}

/// The type whose arithmetic the kernels use for T. Sums and products of integers wrap around, so they are computed
/// unsigned. A bool is a byte that is 0 or 1.
template <class T, bool Wraps = true>
struct kernel_arithmetic {
  using type = T;
};
template <class T, bool Wraps>
  requires std::is_integral_v<T>
struct kernel_arithmetic<T, Wraps> {
  using type = typename std::conditional_t<std::is_same_v<T, bool>, std::type_identity<unsigned char>,
                                           std::conditional_t<Wraps, std::make_unsigned<T>, std::type_identity<T>>>::type;
};
template <class T, bool Wraps = true>
using kernel_t = typename kernel_arithmetic<T, Wraps>::type;
/// The type that a reduction converts elements to before it combines them.
template <monoid Kind, class T>
using combined_t = kernel_t<T, Kind == monoid::add || Kind == monoid::multiply>;

/// Returns the monoid that computes `kind` on T. On bool, maximum and sum are `or`, minimum and product are `and`.
template <class T>
constexpr monoid natural_kind(monoid kind) {
  if (!std::is_same_v<T, bool>) return kind;
  return kind == monoid::max || kind == monoid::add ? monoid::or_ : kind == monoid::or_ ? kind : monoid::and_;
}

/// Returns the reduction of two elements, or of two vectors lane by lane, in kernel arithmetic. If an operand of a
/// maximum or minimum is NaN, the result is NaN, so the order of the operands does not matter.
template <monoid Kind, class V>
[[gnu::always_inline]] constexpr V combine_lanes(V a, V b) {
  if constexpr (Kind == monoid::add) return a + b;
  else if constexpr (Kind == monoid::multiply && std::is_integral_v<V>)
    return static_cast<V>(1U * a * b);  // unsigned: a product of 16-bit operands would overflow int
  else if constexpr (Kind == monoid::multiply) return a * b;
  else if constexpr (Kind == monoid::max) return ((a != a) | (a > b)) ? a : b;
  else if constexpr (Kind == monoid::min) return ((a != a) | (a < b)) ? a : b;
  else if constexpr (Kind == monoid::and_) return static_cast<V>(a & b);
  else return static_cast<V>(a | b);
}

/// Returns the reduction of two elements.
template <class T>
constexpr T combine(monoid kind, T a, T b) {
  return with_monoid(kind, [&](auto given) {
    constexpr monoid natural = natural_kind<T>(decltype(given)::value);
    if constexpr (!monoid_is_defined<T>(natural)) {
      return a;  // unreachable: refused earlier
    } else if constexpr (is_narrow_float<T>) {
      return T(combine_lanes<natural>(static_cast<float>(a), static_cast<float>(b)));
    } else {
      using u = combined_t<natural, T>;
      return static_cast<T>(combine_lanes<natural>(static_cast<u>(a), static_cast<u>(b)));
    }
  });
}

}  // namespace gspmd::detail
