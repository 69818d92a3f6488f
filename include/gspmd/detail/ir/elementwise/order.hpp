// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "gspmd/detail/ir/elementwise/facts.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"

/// Maximum, minimum, sign, rounding to integers, and comparisons.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct extremum_operator : listed_operator,
                           keeps_type,
                           not_folded,
                           needs_instruction,
                           any_role,
                           vectorised_everywhere,
                           one_flop,
                           regards_sign {
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::ordered_types;
  static constexpr bool is_exact = true;
};
struct max_op : extremum_operator {
  static constexpr const char* name = "max";
  /// Returns NaN if an operand is NaN, and `b` if both are zeros.
  [[gnu::always_inline]] static constexpr auto value(auto a, decltype(a) b) -> decltype(a) {
    return ((a != a) | (a > b)) ? a : b;
  }
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(kind == monoid::max); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct min_op : extremum_operator {
  static constexpr const char* name = "min";
  [[gnu::always_inline]] static constexpr auto value(auto a, decltype(a) b) -> decltype(a) {
    return ((a != a) | (a < b)) ? a : b;
  }
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(kind == monoid::min); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct relu_op : one_function, needs_instruction, grows_with_operand {
  static constexpr const char* name = "relu";
  static constexpr dtype_set defined = defined_for::real_numbers;
  static constexpr bool is_exact = true;
  /// Returns NaN for NaN.
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T x) {
    return x <= T{} ? T{} : x;
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

/// A monotonically increasing step function.
struct step_function : one_function, has_no_gradient {
  static constexpr bool is_exact = true;
  static constexpr operator_class meets(const node&, monoid kind) {
    return is_order(kind) ? operator_class{partial_class::all} : operator_class{partial_class::none, every_operand};
  }
};
struct sign_op : step_function, needs_function {
  static constexpr const char* name = "sign";
  static constexpr dtype_set defined = defined_for::real_numbers;
  template <class T>
  [[gnu::always_inline]] static constexpr T value(T x) {
    if constexpr (std::is_unsigned_v<T>) return x > T{} ? T(1) : x;
    else {
      const T negative_or_same = x < T{} ? T(-1) : x;  // 0, -0.0 and NaN are returned unchanged
      return x > T{} ? T(1) : negative_or_same;
    }
  }
};
struct floor_op : step_function, needs_few_instructions {
  static constexpr const char* name = "floor";
  static constexpr dtype_set defined = defined_for::real_floats;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return round_down(x); }
};
struct ceil_op : step_function, needs_few_instructions {
  static constexpr const char* name = "ceil";
  static constexpr dtype_set defined = defined_for::real_floats;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return round_up(x); }
};

struct any_comparison : listed_operator,
                        without_condition,
                        folded_numbers,
                        needs_few_instructions,
                        any_role,
                        vectorised_everywhere,
                        one_flop,
                        selects_values {
  static constexpr int operands = 2;
  static constexpr element_result result = element_result::truth;
  static constexpr bool is_exact = true;
};
struct equality_comparison : any_comparison {
  static constexpr dtype_set defined = defined_for::every_type;
  static constexpr bool ignores_sign = true;
};
struct order_comparison : any_comparison, regards_sign {
  static constexpr dtype_set defined = defined_for::ordered_types;
};
struct compare_eq_op : equality_comparison {
  static constexpr const char* name = "compare_eq";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a == b; }
};
struct compare_ne_op : equality_comparison {
  static constexpr const char* name = "compare_ne";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a != b; }
};
struct compare_lt_op : order_comparison {
  static constexpr const char* name = "compare_lt";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a < b; }
};
struct compare_le_op : order_comparison {
  static constexpr const char* name = "compare_le";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a <= b; }
};
struct compare_gt_op : order_comparison {
  static constexpr const char* name = "compare_gt";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a > b; }
};
struct compare_ge_op : order_comparison {
  static constexpr const char* name = "compare_ge";
  [[gnu::always_inline]] static constexpr bool value(auto a, decltype(a) b) { return a >= b; }
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
