// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include "gspmd/detail/support/language.hpp"

namespace gspmd {
namespace detail {

/// So many types of the user's own a translation unit may have; their numbers begin at 0.
inline constexpr int own_type_count = 4;

/// Where the type of a number is found: own_type defines this function for its own.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // each number has a function of its own, by intent
#endif
template <int Number>
struct own_type_number {
  friend constexpr auto type_of_number(own_type_number);
};
template <class T, int Number>
struct type_of_own_number {
  friend constexpr auto type_of_number(own_type_number<Number>) { return std::type_identity<T>{}; }
};
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

template <class T>
concept adds_and_multiplies = requires(const T a, const T b) {
  { a + b } -> std::convertible_to<T>;
  { a* b } -> std::convertible_to<T>;
};

/// Whether a bit of T{} is set, where that is a constant; padding has none.
template <class T>
constexpr bool has_set_bits() {
  for (const auto byte : std::bit_cast<std::array<unsigned char, sizeof(T)>>(T{}))
    if (byte != 0) return true;
  return false;
}
template <class T> concept has_nonzero_zero = requires { requires std::bool_constant<has_set_bits<T>()>::value; };

template <class T>
constexpr bool is_checked_own_type() {
  static_assert(std::is_trivially_copyable_v<T>,
                "gspmd: an element type of your own is trivially copyable: devices copy its bytes");
  if constexpr (std::is_trivially_copyable_v<T>) {
    static_assert(adds_and_multiplies<T>,
                  "gspmd: an element type of your own has a + b and a * b, of const operands, which give it");
    static_assert(std::has_single_bit(sizeof(T)) && sizeof(T) <= 16,
                  "gspmd: an element type of your own has 1, 2, 4, 8 or 16 bytes; add a member that fills it up");
    static_assert(!has_nonzero_zero<T>,
                  "gspmd: the value T{} of an element type of your own is the zero of its +, and all of its bits are 0");
  }
  return true;
}

}  // namespace detail

/// The element type that a type of your own is, by a number from 0 to 3 that no other type of the program has:
///
///     struct dual { double value, derivative; };                        // with a + b and a * b
///     template <> struct gspmd::element_type<dual> : gspmd::own_type<dual, 0> {};
///
/// before the first program that has such tensors. It is trivially copyable, has 1, 2, 4, 8 or 16 bytes, and `T{}`, whose bits are all 0,
/// is the zero of its `+`, which is associative and commutes. Its `*` is associative, distributes over `+` and gives T{} where an operand
/// is T{}: partial sums are multiplied before they are added up, einsums of many operands are taken in the cheapest order. No compiler
/// checks these laws; the results of a type that breaks them depend on the mesh. Of `+` sums, einsums, scans and collectives are made;
/// `-`, `/` and the sign may be there, all else is a `map` of a function that takes it. All that moves tensors has them, and over MPI
/// they travel as bytes, sums being added by the receiver, in the order of the devices. They are accumulated in themselves. No gradient,
/// no order, no conversion, no numbers beside tensors but 0, and no run-time path: a kernel is compiled for each. Errors, at compile time:
/// what is said above.
template <class T>
struct element_type;

template <class T, int Number>
struct own_type : detail::type_of_own_number<T, Number> {
  static_assert(Number >= 0 && Number < detail::own_type_count,
                "gspmd: own_type: the number of an element type of your own is 0, 1, 2 or 3");
  static_assert(detail::is_checked_own_type<T>() || true);
  static constexpr int number = Number;
};

namespace detail {

/// The type of a number, as `User` finds it, where it is used first.
template <int Number, class User>
concept has_own_type = requires { type_of_number(std::enable_if_t<!std::is_void_v<User>, own_type_number<Number>>{}); };
template <int Number, class User>
using own_type_of = decltype(type_of_number(std::enable_if_t<!std::is_void_v<User>, own_type_number<Number>>{}));

template <class T> concept own_element = requires { element_type<T>::number; };

}  // namespace detail
}  // namespace gspmd
