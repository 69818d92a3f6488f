// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/support/fixed_string.hpp"

namespace gspmd {

/// The element types a program may use: float, double, int32, int64 and bool, under StableHLO's names.
enum class dtype : std::uint8_t { f32, f64, s32, s64, pred };

/// The reductions a program may use. `and_` and `or_` are logical on bool and bitwise on integers.
enum class monoid : std::uint8_t { add, multiply, maximum, minimum, and_, or_ };

namespace detail {

/// An element type in C++; its name in StableHLO, and as a program writes it: convert<double>(x).
template <class T, fixed_string Name, fixed_string CppName>
struct element {
  using type = T;
  static constexpr const char *name = Name.chars, *cpp_name = CppName.chars;
};
/// All element types, one line each, in the order of dtype. Whatever else is asked of one is derived from its line.
using listed_elements = boost::mp11::mp_list<element<float, "f32", "float">,                //
                                             element<double, "f64", "double">,              //
                                             element<std::int32_t, "s32", "std::int32_t">,  //
                                             element<std::int64_t, "s64", "std::int64_t">,  //
                                             element<bool, "pred", "bool">>;
template <class E>
using type_of_element = typename E::type;
using element_types = boost::mp11::mp_transform<type_of_element, listed_elements>;
inline constexpr std::size_t element_type_count = boost::mp11::mp_size<element_types>::value;

struct element_facts {
  const char *name, *cpp_name;
  std::int64_t bytes;
  bool is_floating;
};
template <class... E>
constexpr auto facts_of_elements(boost::mp11::mp_list<E...>) {
  return std::array<element_facts, sizeof...(E)>{
      element_facts{E::name, E::cpp_name, std::int64_t{sizeof(typename E::type)}, std::is_floating_point_v<typename E::type>}...};
}
inline constexpr auto element_table = facts_of_elements(listed_elements{});

constexpr const element_facts& facts_of(dtype type) { return element_table[static_cast<std::size_t>(type)]; }
constexpr std::int64_t bytes_of(dtype type) { return facts_of(type).bytes; }
constexpr bool is_floating(dtype type) { return facts_of(type).is_floating; }
constexpr const char* name_of(dtype type) { return facts_of(type).name; }
constexpr const char* cpp_name_of(dtype type) { return facts_of(type).cpp_name; }

/// Calls `f(T{})` with the element type that `type` names.
template <class F>
constexpr void with_element_type(dtype type, F&& f) {
  boost::mp11::mp_with_index<element_type_count>(static_cast<std::size_t>(type),
                                                 [&](auto i) { f(boost::mp11::mp_at_c<element_types, i>{}); });
}

constexpr const char* name_of(monoid kind) {
  switch (kind) {
    case monoid::add: return "add";
    case monoid::multiply: return "multiply";
    case monoid::maximum: return "maximum";
    case monoid::minimum: return "minimum";
    case monoid::and_: return "and";
    case monoid::or_: return "or";
  }
  return "?";
}

template <class T>
inline constexpr bool is_element = boost::mp11::mp_contains<element_types, T>::value;

/// Reports what is no element type, once. (A function: a class with a failed static_assert is no class for Clang.)
template <class T>
constexpr bool is_checked_element() {
  static_assert(is_element<T>,
                "gspmd: an element type is one of float, double, int32_t, int64_t, bool; a complex tensor is two tensors, one of "
                "real and one of imaginary parts");
  return is_element<T>;
}

template <class T>
constexpr dtype dtype_of() {
  static_assert(is_checked_element<T>() || true);
  if constexpr (is_element<T>) return static_cast<dtype>(boost::mp11::mp_find<element_types, T>::value);
  else return dtype::pred;
}

/// An element as wide as T: permutations are compiled for widths, not for types. (Of floats, for whose shuffles GCC knows more ways.)
template <class T>
using raw_bits = std::conditional_t<sizeof(T) == 1, std::uint8_t, std::conditional_t<sizeof(T) == 4, float, double>>;
/// Calls `f` with an unsigned integer of so many bytes.
template <class F>
constexpr void with_bits(std::int64_t bytes_per_elem, F f) {
  if (bytes_per_elem == 1) f(std::uint8_t{});
  else if (bytes_per_elem == 4) f(std::uint32_t{});
  else f(std::uint64_t{});
}

template <dtype Type>
using element_t = boost::mp11::mp_at_c<element_types, static_cast<std::size_t>(Type)>;

}  // namespace detail
}  // namespace gspmd
