// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gspmd/detail/support/complex_numbers.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/narrow_floats.hpp"
#include "gspmd/detail/support/own_types.hpp"

namespace gspmd {

/// The element types of programs, under XLA's names: float, double, int32, int64, bool, bf16, f16, int8, uint8, int16,
/// uint32, uint64, c64, c128. Values after c128 are the user's own types; see element_type.
enum class dtype : std::uint8_t { f32, f64, s32, s64, pred, bf16, f16, s8, u8, s16, u32, u64, c64, c128 };

// Declared after the enumeration, because GCC warns if an enumerator has the name of an earlier alias.
/// The element type of complex numbers of two floats. std::complex<float> is accepted too.
using c64 = detail::complex_number<float>;
/// The element type of complex numbers of two doubles. std::complex<double> is accepted too.
using c128 = detail::complex_number<double>;

/// The reductions of programs. `and_` and `or_` are logical on bool and bitwise on integers.
enum class monoid : std::uint8_t { add, multiply, max, min, and_, or_ };

namespace detail {

/// A C++ element type, its XLA name, and its name in programs: cast<double>(x). Its arithmetic is done in the type
/// Computes. Elements of a narrow type are converted to Computes, and each result is rounded or truncated back to the
/// narrow type. So conversions are the only kernels that are compiled for narrow types.
template <class T, fixed_string Name, fixed_string CppName, class Computes = T>
struct element {
  using type = T;
  using computes = Computes;
  static constexpr const char *name = Name.chars, *cpp_name = CppName.chars;
};
/// All element types, one line each, in the order of dtype. All other facts of an element type are derived from its
/// line.
using listed_elements = boost::mp11::mp_list<element<float, "f32", "float">,                             //
                                             element<double, "f64", "double">,                           //
                                             element<std::int32_t, "s32", "std::int32_t">,               //
                                             element<std::int64_t, "s64", "std::int64_t">,               //
                                             element<bool, "pred", "bool">,                              //
                                             element<bf16, "bf16", "gspmd::bf16", float>,                //
                                             element<f16, "f16", "gspmd::f16", float>,                   //
                                             element<std::int8_t, "s8", "std::int8_t", std::int32_t>,    //
                                             element<std::uint8_t, "u8", "std::uint8_t", std::int32_t>,  //
                                             element<std::int16_t, "s16", "std::int16_t", std::int32_t>,
                                             element<std::uint32_t, "u32", "std::uint32_t">,  //
                                             element<std::uint64_t, "u64", "std::uint64_t">,  //
                                             element<c64, "c64", "gspmd::c64">, element<c128, "c128", "gspmd::c128">>;
template <class E>
using type_of_element = typename E::type;
template <class E>
using computing_type_of_element = typename E::computes;
template <class T>
using is_complex_type = std::bool_constant<is_complex_element<T>>;
using element_types = boost::mp11::mp_transform<type_of_element, listed_elements>;
inline constexpr std::size_t element_type_count = boost::mp11::mp_size<element_types>::value;
/// The types that kernels compute with. Loops over elements also compute with complex types.
using computing_types =
    boost::mp11::mp_remove_if<boost::mp11::mp_unique<boost::mp11::mp_transform<computing_type_of_element, listed_elements>>,
                              is_complex_type>;

template <class T>
inline constexpr bool is_narrow_float = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;
template <class T>
inline constexpr bool is_float_element = std::is_floating_point_v<T> || is_narrow_float<T>;
/// True for integers except bool.
template <class T>
inline constexpr bool is_integer_element = std::is_integral_v<T> && !std::is_same_v<T, bool>;

struct element_facts {
  const char *name, *cpp_name;
  std::int64_t bytes;
  bool is_floating, is_integer, is_complex, is_own;
  dtype computed_as;
  std::int64_t least, most;  // the range of an integer type; u64: up to the largest int64
};
/// Own types follow the listed types, by number and then by width: 1, 2, 4, 8, 16 bytes. The width is the only stored
/// fact of an own type.
inline constexpr int own_widths = 5;
inline constexpr std::size_t dtype_end = element_type_count + static_cast<std::size_t>(own_type_count * own_widths);
constexpr dtype own_dtype(int number, std::size_t bytes) {
  return static_cast<dtype>(static_cast<int>(element_type_count) + number * own_widths + std::countr_zero(bytes));
}
/// The bytes of the widest element.
inline constexpr std::int64_t most_elem_bytes = 16;
constexpr bool is_own(dtype type) { return static_cast<std::size_t>(type) >= element_type_count; }
constexpr int own_number(dtype type) { return (static_cast<int>(type) - static_cast<int>(element_type_count)) / own_widths; }
template <class T>
constexpr std::int64_t end_of_integers(bool most) {
  if constexpr (!is_integer_element<T>) return 0;
  else if constexpr (std::is_same_v<T, std::uint64_t>) return most ? std::numeric_limits<std::int64_t>::max() : 0;
  else return most ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min();
}
template <class... E>
constexpr auto facts_of_elements(boost::mp11::mp_list<E...>) {
  std::array<element_facts, dtype_end> table{
      element_facts{E::name, E::cpp_name, std::int64_t{sizeof(typename E::type)},
                    is_float_element<typename E::type> || is_complex_element<typename E::type>,
                    is_integer_element<typename E::type>, is_complex_element<typename E::type>, false,
                    static_cast<dtype>(boost::mp11::mp_find<element_types, typename E::computes>::value),
                    end_of_integers<typename E::type>(false), end_of_integers<typename E::type>(true)}...};
  constexpr const char* names[] = {"own type 0", "own type 1", "own type 2", "own type 3"};
  for (auto i = sizeof...(E); i < dtype_end; ++i) {
    const auto type = static_cast<dtype>(i);
    const char* const name = names[own_number(type)];
    table[i] = {name, name, std::int64_t{1} << (i - sizeof...(E)) % own_widths, false, false, false, true, type, 0, 0};
  }
  return table;
}
inline constexpr auto element_table = facts_of_elements(listed_elements{});

constexpr const element_facts& facts_of(dtype type) { return element_table[static_cast<std::size_t>(type)]; }
constexpr std::int64_t bytes_of(dtype type) { return facts_of(type).bytes; }
constexpr bool is_floating(dtype type) { return facts_of(type).is_floating; }
constexpr bool is_complex(dtype type) { return facts_of(type).is_complex; }
/// Returns the type of the real and imaginary parts of a complex number; other types are returned unchanged. Code that
/// accesses no single elements treats a complex tensor as a tensor of its parts with a last dim of 2. So sums, products
/// and movements need no kernels for complex types.
constexpr dtype part_of(dtype type) { return type == dtype::c64 ? dtype::f32 : type == dtype::c128 ? dtype::f64 : type; }
constexpr const char* name_of(dtype type) { return facts_of(type).name; }
constexpr const char* cpp_name_of(dtype type) { return facts_of(type).cpp_name; }
/// Returns the type that kernels compute with for elements of `type`.
constexpr dtype computed_as(dtype type) { return facts_of(type).computed_as; }
constexpr bool is_narrow(dtype type) { return computed_as(type) != type; }
/// Returns true for conversions of bf16 and f16 to float and double, which are exact.
constexpr bool is_widening(dtype from, dtype to) {
  return is_narrow(from) && is_floating(from) && !is_narrow(to) && is_floating(to) && !is_complex(to);
}

/// Returns the listed type that communication uses instead of an own type: one with the same width.
constexpr dtype moved_as(dtype type) {
  constexpr dtype by_width[] = {dtype::u8, dtype::s16, dtype::u32, dtype::u64, dtype::c128};
  return is_own(type) ? by_width[(static_cast<std::size_t>(type) - element_type_count) % own_widths] : type;
}

/// Returns the signed type of the same width. The bits of sums and products do not depend on the sign.
constexpr dtype signed_of(dtype type) { return type == dtype::u32 ? dtype::s32 : type == dtype::u64 ? dtype::s64 : type; }

/// Calls `f(T{})` with the element type that `type` names. `type` must not be an own type.
template <class F>
constexpr void with_element_type(dtype type, F&& f) {
  boost::mp11::mp_with_index<element_type_count>(static_cast<std::size_t>(type),
                                                 [&](auto i) { f(boost::mp11::mp_at_c<element_types, i>{}); });
}
/// Calls `f` with the element type if it is a real type; does nothing for a complex type.
template <class F>
constexpr void with_real_type(dtype type, F&& f) {
  with_element_type(type, [&]<class T>(T element) {
    if constexpr (!is_complex_element<T>) f(element);
  });
}
/// Calls `f` with the element type if kernels compute with it; does nothing for a narrow or complex type.
template <class F>
constexpr void with_computing_type(dtype type, F&& f) {
  with_element_type(type, [&]<class T>(T element) {
    if constexpr (boost::mp11::mp_contains<computing_types, T>::value) f(element);
  });
}

constexpr const char* name_of(monoid kind) {
  switch (kind) {
    case monoid::add: return "add";
    case monoid::multiply: return "multiply";
    case monoid::max: return "max";
    case monoid::min: return "min";
    case monoid::and_: return "and";
    case monoid::or_: return "or";
  }
  return "?";
}

template <class T>
inline constexpr bool is_element = boost::mp11::mp_contains<element_types, listed_element_t<T>>::value || own_element<T>;

/// Reports a type that is not an element type, once. This is a function because Clang does not treat a class with a
/// failed static_assert as a class.
template <class T>
constexpr bool is_checked_element() {
  static_assert(
      is_element<T>,
      "gspmd: an element type is one of float, double, gspmd::bf16, gspmd::f16, bool, int8_t, int16_t, int32_t, int64_t, "
      "uint8_t, uint32_t, uint64_t, gspmd::c64, gspmd::c128 (or std::complex<float>, std::complex<double>), or a type of your "
      "own for "
      "which gspmd::element_type is specialised");
  return is_element<T>;
}

template <class T>
constexpr dtype dtype_of() {
  static_assert(is_checked_element<T>() || true);
  if constexpr (own_element<T>) return own_dtype(element_type<T>::number, sizeof(T));
  else if constexpr (is_element<T>) return static_cast<dtype>(boost::mp11::mp_find<element_types, listed_element_t<T>>::value);
  else return dtype::pred;
}

/// Two words of 64 bits. The constructor from one word widens the bits of two floats to the bits of two doubles: see
/// bits_of.
struct two_words {
  std::uint64_t first, second;
  two_words() = default;
  constexpr explicit two_words(std::uint64_t bits) : first(widened(bits)), second(widened(bits >> 32)) {}

 private:
  static constexpr std::uint64_t widened(std::uint64_t bits) {
    const auto part = __builtin_bit_cast(float, static_cast<std::uint32_t>(bits));
    return __builtin_bit_cast(std::uint64_t, static_cast<double>(part));
  }
};

/// A type with the width of T, at most 8 bytes: permutations are compiled per width, not per type. It is a floating
/// type where possible, because GCC can shuffle floats in more ways.
template <class T>
using raw_bits = std::conditional_t<
    sizeof(T) == 1, std::uint8_t,
    std::conditional_t<
        sizeof(T) == 2, std::uint16_t,
        std::conditional_t<sizeof(T) == 4, float, std::conditional_t<own_element<T> && sizeof(T) == 16, two_words, double>>>>;
/// Calls `f` with an unsigned integer of `bytes_per_elem` bytes.
template <class F>
constexpr void with_word(std::int64_t bytes_per_elem, F f) {
  if (bytes_per_elem == 1) f(std::uint8_t{});
  else if (bytes_per_elem == 2) f(std::uint16_t{});
  else if (bytes_per_elem == 4) f(std::uint32_t{});
  else f(std::uint64_t{});
}
/// Calls `f` with an unsigned integer of `bytes_per_elem` bytes, or with two_words for 16 bytes.
template <class F>
constexpr void with_bits(std::int64_t bytes_per_elem, F f) {
  if (bytes_per_elem == 16) f(two_words{});
  else with_word(bytes_per_elem, f);
}

template <dtype Type, bool IsOwn = is_own(Type)>
struct element_of {
  using type = boost::mp11::mp_at_c<element_types, static_cast<std::size_t>(Type)>;
};
template <dtype Type>
struct element_of<Type, true> {
  using type = typename decltype(type_of_number(own_type_number<own_number(Type)>{}))::type;
};
template <dtype Type>
using element_t = typename element_of<Type>::type;

}  // namespace detail
}  // namespace gspmd
