// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/detail/support/language.hpp"

/// The members of a user's struct: their number, references to them, and their names. The struct needs no macro.
///
///     template <class T> struct layer { T w, b; };
///     member_count<layer<value>>()            2
///     struct_members<layer<value>>::tie(x)    std::tie(x.w, x.b)
///     struct_members<layer<value>>::name<1>   "b"
namespace gspmd::detail {

/// True for the aggregates that are no groups: containers, views of external memory, and inputs.
template <class T>
inline constexpr bool is_leaf_struct = requires(T& x) { *x.data(); } || requires(T& x) { *x.begin(); } ||
                                       requires { typename T::edge; } || requires { std::bool_constant<(T::leaves >= 0)>{}; };
template <class T>
inline constexpr bool is_plain_struct = false;
template <class T>
  requires(std::is_class_v<T> && std::is_aggregate_v<T>)
inline constexpr bool is_plain_struct<T> = !is_leaf_struct<T>;

inline constexpr std::size_t max_members = 64;

/// Converts to every type, in place of a member in an initialiser list.
struct any_member {
  std::size_t number;
  template <class Member>
  operator Member() const;  // NOLINT(google-explicit-constructor)
};
/// Converts to the base classes of T.
template <class T>
struct any_base {
  template <class Base>
    requires(std::is_base_of_v<Base, T> && !std::is_same_v<Base, T>)
  operator Base() const;  // NOLINT(google-explicit-constructor)
};
/// Converts to nothing.
struct no_member {};

template <class T, std::size_t... K>
consteval bool accepts_initialisers(std::index_sequence<K...>) {
  return requires { T{any_member{K}...}; };
}
/// Returns true if `{}` may initialise one member, after the members K and before the members Next.
template <class T, std::size_t... K, std::size_t... Next>
consteval bool takes_braces(std::index_sequence<K...>, std::index_sequence<Next...>) {
  return requires { T{any_member{K}..., {}, any_member{Next}...}; };
}
template <class T, class First, std::size_t... Next>
consteval bool takes_first(std::index_sequence<Next...>) {
  return requires { T{First{}, any_member{Next}...}; };
}

/// Returns the largest number of initialisers that T accepts; max_members + 1 if it accepts more than max_members, and
/// not_counted if it accepts no number. Members without a default refuse a smaller number than their own.
inline constexpr std::size_t not_counted = max_members + 2;
template <class T, std::size_t Count = 0, bool Found = false>
consteval std::size_t initializer_count() {
  if constexpr (Count == not_counted) return Found ? max_members + 1 : not_counted;
  else if constexpr (accepts_initialisers<T>(std::make_index_sequence<Count>{})) return initializer_count<T, Count + 1, true>();
  else if constexpr (Found) return Count - 1;
  else return initializer_count<T, Count + 1>();
}

/// Returns true if member K is a C array. Without braces each element of an array takes an initialiser. So after `{}`
/// for the whole array, fewer than Count - K - 1 initialisers are accepted.
template <class T, std::size_t Count, std::size_t K>
consteval bool is_array_member() {
  using before = std::make_index_sequence<K>;
  if constexpr (takes_braces<T>(before{}, std::make_index_sequence<Count - K - 1>{})) return false;
  else
    return []<std::size_t... Rest>(std::index_sequence<Rest...>) {
      return (takes_braces<T>(before{}, std::make_index_sequence<Rest>{}) || ...);
    }(std::make_index_sequence<Count - K - 1>{});
}

/// Reports a struct whose members cannot be bound.
template <class T>
consteval bool accept_struct() {
  constexpr std::size_t count = initializer_count<T>();
  if constexpr (count > max_members) {
    static_assert(count != max_members + 1,
                  "gspmd: struct: it has more than 64 members; group them in structs of their own, or in a std::array");
    static_assert(count != not_counted, "gspmd: struct: a member is a reference; make it a value, an array or a group");
    return false;
  } else if constexpr (takes_braces<T>(std::make_index_sequence<count>{}, std::index_sequence<>{})) {
    static_assert(std::is_void_v<T>, "gspmd: struct: a member converts from every type; make it a value, an array or a group");
    return false;
  } else if constexpr (count > 0) {
    using others = std::make_index_sequence<count - 1>;
    constexpr bool has_base = takes_first<T, any_base<T>>(others{}) && !takes_first<T, no_member>(others{});
    constexpr bool has_array = []<std::size_t... K>(std::index_sequence<K...>) {
      return (is_array_member<T, count, K>() || ...);
    }(std::make_index_sequence<count>{});
    static_assert(!has_base, "gspmd: struct: it has a base class; make the base class a member");
    static_assert(!has_array, "gspmd: struct: a member is a C array; make it a std::array");
    return !has_base && !has_array;
  } else {
    return true;
  }
}
/// Returns the number of members; 0 if accept_struct has reported the struct.
template <class T>
consteval std::size_t member_count() {
  if constexpr (accept_struct<T>()) return initializer_count<T>();
  else return 0;
}

// clang-format off
template <std::size_t Count, class T>
constexpr auto bind_members([[maybe_unused]] T& tree) {
  if constexpr (Count == 0) return std::tie();
  if constexpr (Count == 1) { auto& [a0] = tree; return std::tie(a0); }
  if constexpr (Count == 2) { auto& [a0, a1] = tree; return std::tie(a0, a1); }
  if constexpr (Count == 3) { auto& [a0, a1, a2] = tree; return std::tie(a0, a1, a2); }
  if constexpr (Count == 4) { auto& [a0, a1, a2, a3] = tree; return std::tie(a0, a1, a2, a3); }
  if constexpr (Count == 5) { auto& [a0, a1, a2, a3, a4] = tree; return std::tie(a0, a1, a2, a3, a4); }
  if constexpr (Count == 6) { auto& [a0, a1, a2, a3, a4, a5] = tree; return std::tie(a0, a1, a2, a3, a4, a5); }
  if constexpr (Count == 7) { auto& [a0, a1, a2, a3, a4, a5, a6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6); }
  if constexpr (Count == 8) { auto& [a0, a1, a2, a3, a4, a5, a6, a7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7); }
  if constexpr (Count == 9) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0); }
  if constexpr (Count == 10) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1); }
  if constexpr (Count == 11) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2); }
  if constexpr (Count == 12) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3); }
  if constexpr (Count == 13) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4); }
  if constexpr (Count == 14) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5); }
  if constexpr (Count == 15) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6); }
  if constexpr (Count == 16) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7); }
  if constexpr (Count == 17) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0); }
  if constexpr (Count == 18) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1); }
  if constexpr (Count == 19) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2); }
  if constexpr (Count == 20) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3); }
  if constexpr (Count == 21) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4); }
  if constexpr (Count == 22) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5); }
  if constexpr (Count == 23) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6); }
  if constexpr (Count == 24) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7); }
  if constexpr (Count == 25) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0); }
  if constexpr (Count == 26) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1); }
  if constexpr (Count == 27) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2); }
  if constexpr (Count == 28) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3); }
  if constexpr (Count == 29) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4); }
  if constexpr (Count == 30) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5); }
  if constexpr (Count == 31) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6); }
  if constexpr (Count == 32) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7); }
  if constexpr (Count == 33) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0); }
  if constexpr (Count == 34) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1); }
  if constexpr (Count == 35) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2); }
  if constexpr (Count == 36) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3); }
  if constexpr (Count == 37) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4); }
  if constexpr (Count == 38) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5); }
  if constexpr (Count == 39) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6); }
  if constexpr (Count == 40) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7); }
  if constexpr (Count == 41) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0); }
  if constexpr (Count == 42) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1); }
  if constexpr (Count == 43) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2); }
  if constexpr (Count == 44) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3); }
  if constexpr (Count == 45) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4); }
  if constexpr (Count == 46) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5); }
  if constexpr (Count == 47) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6); }
  if constexpr (Count == 48) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7); }
  if constexpr (Count == 49) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0); }
  if constexpr (Count == 50) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1); }
  if constexpr (Count == 51) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2); }
  if constexpr (Count == 52) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3); }
  if constexpr (Count == 53) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4); }
  if constexpr (Count == 54) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5); }
  if constexpr (Count == 55) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6); }
  if constexpr (Count == 56) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7); }
  if constexpr (Count == 57) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0); }
  if constexpr (Count == 58) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1); }
  if constexpr (Count == 59) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2); }
  if constexpr (Count == 60) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3); }
  if constexpr (Count == 61) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4); }
  if constexpr (Count == 62) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5); }
  if constexpr (Count == 63) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5, h6] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5, h6); }
  if constexpr (Count == 64) { auto& [a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5, h6, h7] = tree; return std::tie(a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, d0, d1, d2, d3, d4, d5, d6, d7, e0, e1, e2, e3, e4, e5, e6, e7, f0, f1, f2, f3, f4, f5, f6, f7, g0, g1, g2, g3, g4, g5, g6, g7, h0, h1, h2, h3, h4, h5, h6, h7); }
}
// clang-format on

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
/// An object that does not exist. The compiler writes the name of a member into the name of a function whose template
/// argument is the member's address.
template <class T>
struct holder {
  T object;
};
template <class T>
extern const holder<T> nowhere;

template <class Member>
struct member_address {
  const Member* address;
};
template <class Member>
member_address(Member*) -> member_address<Member>;

template <member_address Address>
consteval std::string_view find_name() {
  std::string_view name = __PRETTY_FUNCTION__;  // ends in `::w)}; ...]` (GCC) or `.w}]` (Clang)
  name = name.substr(0, name.find_last_of('}'));
  name.remove_suffix(name.ends_with(')') ? 1 : 0);
  return name.substr(name.find_last_of(".:") + 1);
}
/// Returns the name of member K. The name is the number K if the struct has a reference, whose address is not constant.
template <std::size_t K, class T>
consteval auto find_member_name() {
  if constexpr (requires { find_name<member_address{&std::get<K>(bind_members<member_count<T>()>(nowhere<T>.object))}>(); }) {
    constexpr auto found = find_name<member_address{&std::get<K>(bind_members<member_count<T>()>(nowhere<T>.object))}>();
    std::array<char, found.size() + 1> name{};
    for (std::size_t k = 0; k < found.size(); ++k) name[k] = found[k];
    return name;
  } else if constexpr (K < 10) {
    return std::array<char, 2>{'0' + K};
  } else {
    return std::array<char, 3>{'0' + K / 10, '0' + K % 10};
  }
}
#ifdef __clang__
#pragma clang diagnostic pop
#endif
template <std::size_t K, class T>
inline constexpr auto kept_member_name = find_member_name<K, T>();

/// The members of a group that is a user's struct. An aggregate needs no specialisation. gspmd/program/hana.hpp
/// specialises it for structs that are adapted to Boost.Hana.
template <class T>
struct struct_members {
  static constexpr bool is_group = is_plain_struct<T>;

  template <class Tree>
  static constexpr auto tie(Tree& tree) {
    return bind_members<member_count<T>()>(tree);
  }
  template <std::size_t K>
  static constexpr const char* name = kept_member_name<K, T>.data();
};

}  // namespace gspmd::detail
