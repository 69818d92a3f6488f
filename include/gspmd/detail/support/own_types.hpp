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

/// The number of own types that a translation unit can have. They are numbered from 0.
inline constexpr int own_type_count = 4;

/// Declares the function that maps a number to its own type. type_of_own_number defines the function for its type.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-template-friend"  // each number has its own function, by intent
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

/// Returns true if a bit of T{} is set. It is a constant only if T has no padding.
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

/// Registers your own arithmetic type as an element type, by a number from 0 to 3 that no other type of the program
/// has. Specialise it before the first program that has such tensors.
///
/// The type must be trivially copyable and have 1, 2, 4, 8 or 16 bytes. It needs `a + b` and `a * b`, and these laws:
///
///   - `T{}` has only zero bits and is the zero of `+`.
///   - `+` is associative and commutative.
///   - `*` is associative and distributes over `+`. A product with T{} is T{}.
///
/// The planner uses the laws: it multiplies partial values before it adds them, and orders einsums of many operands by
/// cost. Compilers cannot check the laws. If a type breaks them, the results depend on the mesh.
///
/// Sums, einsums and scans use `+`. `-`, `/` and the sign are optional. For all other elementwise functions use `map`.
/// All operators that move tensors support own types. Sums accumulate in the type itself. Own types have no gradient,
/// order, conversion or number operands except 0. They have no run-time path, because each type needs compiled kernels.
///
/// **Communication.** Collectives use `+` too. Over MPI the elements are sent as bytes, and the receiver adds them in
/// the order of the devices.
/// **Errors.** At compile time: a type without the required size, operators or zero.
/// **Example.**
///
///     struct dual { double value, derivative; };                        // with a + b and a * b
///     template <> struct gspmd::element_type<dual> : gspmd::own_type<dual, 0> {};
template <class T>
struct element_type;

/// The base class of element_type<T> for your own type T, with a number that is different for each of your types.
template <class T, int Number>
struct own_type : detail::type_of_own_number<T, Number> {
  static_assert(Number >= 0 && Number < detail::own_type_count,
                "gspmd: own_type: the number of an element type of your own is 0, 1, 2 or 3");
  static_assert(detail::is_checked_own_type<T>() || true);
  static constexpr int number = Number;
};

namespace detail {

/// True if a type has this number. `User` makes the lookup depend on a template argument, so that it happens at the
/// first use.
template <int Number, class User>
concept has_own_type = requires { type_of_number(std::enable_if_t<!std::is_void_v<User>, own_type_number<Number>>{}); };
template <int Number, class User>
using own_type_of = decltype(type_of_number(std::enable_if_t<!std::is_void_v<User>, own_type_number<Number>>{}));

template <class T> concept own_element = requires { element_type<T>::number; };

}  // namespace detail
}  // namespace gspmd
