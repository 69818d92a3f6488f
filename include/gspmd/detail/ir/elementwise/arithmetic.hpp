// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/elementwise/facts.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"

/// Sums, products and quotients, with the semantics of StableHLO. All results are defined for all operands.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct arithmetic_operator : listed_operator, keeps_type, any_role, vectorised_everywhere, one_flop {};

struct negative_op : arithmetic_operator, folded_numbers, needs_instruction {
  static constexpr const char* name = "negative";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::numbers | defined_for::own_types;
  static constexpr bool is_exact = true, ignores_sign = true;
  static constexpr loop_facts::role_class role = loop_facts::role_class::product;

  template <class T>
  [[gnu::always_inline]] static constexpr T value(T x) {
    if constexpr (std::is_integral_v<T>) {
      using natural = std::make_unsigned_t<T>;
      return static_cast<T>(natural{} - static_cast<natural>(x));
    } else {
      static_assert(
          requires { static_cast<T>(-x); }, "gspmd: negative: the element type of your own has no -x; give it one");
      return static_cast<T>(-x);
    }
  }
  /// The negation of a maximum is a minimum.
  static constexpr operator_class meets(const auto& n, monoid kind) {
    const bool turns = is_order(kind);
    return {kind == monoid::add || (turns && is_floating(n.type)) ? partial_class::all : partial_class::none, 0, turns};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct add_op : arithmetic_operator, needs_instruction {
  static constexpr const char* name = "add";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::numbers | defined_for::own_types;
  static constexpr bool is_exact = true, ignores_sign = true;
  static constexpr folding folds = folding::numbers;
  static constexpr neutral_operand neutral{true, true, -0.0, 0};  // -0.0 + 0.0 is 0.0
  static constexpr loop_facts::role_class role = loop_facts::role_class::sum;

  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using natural = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<natural>(a) + static_cast<natural>(b));
    } else {
      return static_cast<T>(a + b);
    }
  }
  /// If x is partial and y is not, x + y would add y on every device. So either all operands are partial or none.
  static constexpr operator_class meets(const auto& n, monoid kind) {
    if (kind == monoid::add) return {partial_class::all};
    return {is_order(kind) && is_floating(n.type) ? partial_class::one : partial_class::none};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct subtract_op : arithmetic_operator, needs_instruction {
  static constexpr const char* name = "subtract";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::numbers | defined_for::own_types;
  static constexpr bool is_exact = true, ignores_sign = true;
  static constexpr folding folds = folding::numbers;
  static constexpr neutral_operand neutral{false, true, 0.0, 0};
  static constexpr loop_facts::role_class role = loop_facts::role_class::sum;

  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using natural = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<natural>(a) - static_cast<natural>(b));
    } else {
      static_assert(
          requires { static_cast<T>(a - b); }, "gspmd: subtract: the element type of your own has no a - b; give it one");
      return static_cast<T>(a - b);
    }
  }
  static constexpr operator_class meets(const auto& n, monoid kind) {
    if (kind == monoid::add) return {partial_class::all};
    return {is_order(kind) && is_floating(n.type) ? partial_class::first : partial_class::none};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct multiply_op : arithmetic_operator, needs_instruction {
  static constexpr const char* name = "multiply";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::numbers | defined_for::own_types;
  static constexpr bool is_exact = true, ignores_sign = true;
  static constexpr folding folds = folding::numbers;
  static constexpr neutral_operand neutral{true, true, 1, 1};
  static constexpr loop_facts::role_class role = loop_facts::role_class::product;

  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using natural = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<natural>(a) * static_cast<natural>(b));
    } else {
      return static_cast<T>(a * b);
    }
  }
  /// A product of two sums is not a sum of products.
  static constexpr operator_class meets(const auto& n, monoid kind) {
    if (is_order(kind) && is_floating(n.type)) return {partial_class::scaled};
    return {kind == monoid::add ? partial_class::one : kind == monoid::multiply ? partial_class::all : partial_class::none};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct divide_op : arithmetic_operator, needs_few_instructions, regards_sign {
  static constexpr const char* name = "divide";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::numbers | defined_for::own_types;
  static constexpr bool is_exact = true;
  static constexpr folding folds = folding::floats_unless_by_zero;
  static constexpr neutral_operand neutral{false, true, 1, 1};

  /// See divide_integers for integers.
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return divide_integers(a, b);
    } else {
      static_assert(
          requires { static_cast<T>(a / b); }, "gspmd: divide: the element type of your own has no a / b; give it one");
      return static_cast<T>(a / b);
    }
  }
  static constexpr operator_class meets(const auto& n, monoid kind) {
    if (!is_floating(n.type)) return {};
    return {kind == monoid::add ? partial_class::first : is_order(kind) ? partial_class::quotient : partial_class::none};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct fmod_op : arithmetic_operator, not_folded, needs_function, regards_sign, reduces_operands {
  static constexpr const char* name = "fmod";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::real_numbers;
  static constexpr bool is_exact = true;

  template <class T>
  [[gnu::always_inline]] static T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) return remainder_of_integers(a, b);
    else return std::fmod(a, b);
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct pow_op : arithmetic_operator, not_folded, needs_function, regards_sign, reduces_operands {
  static constexpr const char* name = "pow";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::real_numbers;
  static constexpr bool is_exact = false;

  template <class T>
  [[gnu::always_inline]] static T value(T a, T b) {
    if constexpr (std::is_integral_v<T>) return power_of_integers(a, b);
    else return std::pow(a, b);
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct abs_op : listed_operator,
                without_condition,
                not_folded,
                needs_instruction,
                any_role,
                vectorised_everywhere,
                one_flop,
                regards_sign,
                reduces_operands {
  static constexpr const char* name = "abs";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::numbers;
  static constexpr element_result result = element_result::part;
  static constexpr bool is_exact = true;

  template <class T>
  [[gnu::always_inline]] static auto value(T x) {
    if constexpr (is_complex_element<T>) return std::hypot(x.re, x.im);
    else if constexpr (std::is_unsigned_v<T>) return x;
    else if constexpr (std::is_integral_v<T>) return x < 0 ? negative_op::value(x) : x;
    else return absolute(x);
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
