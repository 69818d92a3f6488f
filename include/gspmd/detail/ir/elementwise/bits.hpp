// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/elementwise/facts.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"

/// Logical operators on bools, and bitwise operators on integers.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct bit_function : listed_operator, keeps_type, needs_function, any_role, vectorised_everywhere, one_flop, has_no_gradient {
  static constexpr bool is_exact = true;
};
struct bit_logic : bit_function {
  static constexpr dtype_set defined = defined_for::integers_and_pred;
  static constexpr bool ignores_sign = true;
  static constexpr folding folds = folding::integers;
};
/// Operands of type pred have no gradient.
struct selects_if_pred {
  static constexpr operator_class meets(const auto& n, monoid) {
    return {partial_class::none, n.type == dtype::pred ? every_operand : 0U};
  }
};

struct not_op : bit_logic, selects_if_pred {
  static constexpr const char* name = "not";
  static constexpr int operands = 1;
  static constexpr neutral_operand neutral{};
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T x) {
    if constexpr (std::is_same_v<T, bool>) return !x;
    else return static_cast<T>(~x);
  }
};
struct and_op : bit_logic {
  static constexpr const char* name = "and";
  static constexpr int operands = 2;
  static constexpr neutral_operand neutral{};
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    return static_cast<T>(a & b);
  }
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(kind == monoid::and_); }
};
struct or_op : bit_logic {
  static constexpr const char* name = "or";
  static constexpr int operands = 2;
  static constexpr neutral_operand neutral{true, true, 0, 0};
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    return static_cast<T>(a | b);
  }
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(kind == monoid::or_); }
};
struct xor_op : bit_logic, selects_if_pred {
  static constexpr const char* name = "xor";
  static constexpr int operands = 2;
  static constexpr neutral_operand neutral{true, true, 0, 0};
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

struct bit_shift : bit_function, not_folded, reduces_operands {
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::integers;
};
struct left_shift_op : bit_shift {
  static constexpr const char* name = "left_shift";
  static constexpr bool ignores_sign = true;
  [[gnu::always_inline]] static constexpr auto value(auto a, decltype(a) b) -> decltype(a) { return shift_bits(true, a, b); }
};
struct right_shift_op : bit_shift, regards_sign {
  static constexpr const char* name = "right_shift";
  [[gnu::always_inline]] static constexpr auto value(auto a, decltype(a) b) -> decltype(a) { return shift_bits(false, a, b); }
};
/// Computes random bits from a counter and a key.
struct threefry2x32_op : bit_function, not_folded, regards_sign, reduces_operands {
  static constexpr const char* name = "threefry2x32";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::only(dtype::u64);
  static constexpr loop_facts::vector_class vectors = loop_facts::vector_class::random_bits;
  [[gnu::always_inline]] static constexpr std::uint64_t value(std::uint64_t counter, std::uint64_t key) {
    return threefry2x32(counter, key);
  }
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
