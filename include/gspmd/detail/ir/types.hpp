// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gspmd {

/// The element types a program may use: float, double, int32, int64 and bool, under StableHLO's names.
enum class dtype : std::uint8_t { f32, f64, s32, s64, pred };

/// The reductions a program may use. `and_` and `or_` are logical on bool and bitwise on integers.
enum class monoid : std::uint8_t { add, multiply, maximum, minimum, and_, or_ };

namespace detail {

constexpr std::int64_t bytes_of(dtype type) {
  switch (type) {
    case dtype::f32:
    case dtype::s32: return 4;
    case dtype::f64:
    case dtype::s64: return 8;
    case dtype::pred: return 1;
  }
  return 0;
}

constexpr bool is_floating(dtype type) { return type == dtype::f32 || type == dtype::f64; }

constexpr const char* name_of(dtype type) {
  switch (type) {
    case dtype::f32: return "f32";
    case dtype::f64: return "f64";
    case dtype::s32: return "s32";
    case dtype::s64: return "s64";
    case dtype::pred: return "pred";
  }
  return "?";
}

/// As a program writes it: convert<double>(x).
constexpr const char* cpp_name_of(dtype type) {
  switch (type) {
    case dtype::f32: return "float";
    case dtype::f64: return "double";
    case dtype::s32: return "std::int32_t";
    case dtype::s64: return "std::int64_t";
    case dtype::pred: return "bool";
  }
  return "?";
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
inline constexpr bool is_element = std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int32_t> ||
                                   std::is_same_v<T, std::int64_t> || std::is_same_v<T, bool>;

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
  if constexpr (std::is_same_v<T, float>) return dtype::f32;
  else if constexpr (std::is_same_v<T, double>) return dtype::f64;
  else if constexpr (std::is_same_v<T, std::int32_t>) return dtype::s32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return dtype::s64;
  else return dtype::pred;
}

template <dtype Type>
struct element_type;
template <>
struct element_type<dtype::f32> {
  using type = float;
};
template <>
struct element_type<dtype::f64> {
  using type = double;
};
template <>
struct element_type<dtype::s32> {
  using type = std::int32_t;
};
template <>
struct element_type<dtype::s64> {
  using type = std::int64_t;
};
template <>
struct element_type<dtype::pred> {
  using type = bool;
};
template <dtype Type>
using element_t = typename element_type<Type>::type;

}  // namespace detail
}  // namespace gspmd
