// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "gspmd/detail/ir/elementwise/facts.hpp"
#include "gspmd/detail/ir/scalar_ops.hpp"

/// Conversions, complex numbers, selections, and functions of the user.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// A linear operator: applied to partial sums, it returns a partial sum.
struct linear_part : listed_operator,
                     without_condition,
                     not_folded,
                     needs_function,
                     any_role,
                     vectorised_everywhere,
                     one_flop,
                     regards_sign {
  static constexpr bool is_exact = true;
  static constexpr operator_class meets(const node&, monoid kind) { return all_if(kind == monoid::add); }
};
struct real_op : linear_part {
  static constexpr const char* name = "real";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::complex_floats;
  static constexpr element_result result = element_result::part;
  [[gnu::always_inline]] static constexpr auto value(auto z) { return z.re; }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct imag_op : linear_part {
  static constexpr const char* name = "imag";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::complex_floats;
  static constexpr element_result result = element_result::part;
  [[gnu::always_inline]] static constexpr auto value(auto z) { return z.im; }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct conj_op : linear_part {
  static constexpr const char* name = "conj";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::complex_floats;
  static constexpr element_result result = element_result::same;
  [[gnu::always_inline]] static constexpr auto value(auto z) -> decltype(z) { return {z.re, -z.im}; }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct complex_op : linear_part {
  static constexpr const char* name = "complex";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::only(dtype::f32) | defined_for::only(dtype::f64);
  static constexpr element_result result = element_result::pair;
  template <class T>
  [[gnu::always_inline]] static constexpr complex_number<T> value(T re, T im) {
    return {re, im};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

struct cast_op : listed_operator,
                 without_condition,
                 folded_numbers,
                 needs_instruction,
                 any_role,
                 vectorised_everywhere,
                 one_flop,
                 regards_sign {
  static constexpr const char* name = "cast";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::every_type | defined_for::own_types;
  static constexpr element_result result = element_result::chosen;
  static constexpr bool is_exact = true;
  template <class To>
  [[gnu::always_inline]] static constexpr To value(auto x) {
    return convert_element<To>(x);
  }

  // ---- `integer` of a conversion between floats; 0 for all other conversions ----

  static constexpr std::int64_t linear = 1;              // does not round, or is part of a composite
  static constexpr std::int64_t linear_in_gradient = 2;  // rounds, and the user wrote it
  /// The conversion widens a term of a sum. The planner may keep its operand and its result partial, like those of an
  /// add. All other conversions are recomputed at each use, from the reduced operand.
  static constexpr std::int64_t widened_term = 3;

  /// A conversion that rounds is linear only in a composite or a gradient, where each partial value is rounded. A
  /// partial value can be infinite in f16 although the sum is finite, so a conversion that the user wrote reduces its
  /// operand.
  static constexpr operator_class meets(const auto& n, monoid kind) {
    const bool is_linear = n.integer == linear || n.integer == widened_term || (n.integer == linear_in_gradient && n.in_gradient);
    return {kind == monoid::add && is_linear ? partial_class::all : partial_class::none,
            is_floating(n.type) ? 0U : every_operand};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
/// Returns its operand. Gradients do not pass through it.
struct stop_gradient_op : listed_operator,
                          keeps_type,
                          folded_numbers,
                          needs_function,
                          any_role,
                          vectorised_everywhere,
                          one_flop,
                          has_no_gradient {
  static constexpr const char* name = "stop_gradient";
  static constexpr int operands = 1;
  static constexpr dtype_set defined = defined_for::every_type | defined_for::own_types;
  static constexpr bool is_exact = true, ignores_sign = true;
  [[gnu::always_inline]] static constexpr auto value(auto x) -> decltype(x) { return x; }
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all, 0, false, true}; }
};

/// Selects one of two values. Floats are selected by a mask, because GCC moves a computation for one of the values into
/// a branch and then does not vectorise the loop. `no-trapping-math` (GSPMD_LOOP_FUNCTION) prevents this only if no
/// value is computed. With a branch, x > 0 ? 2x : y takes 34 times as long (SSE2), and NPB's EP 7 times (AVX-512). The
/// mask is itself a selection, and not 0 - which as in `choose`: that takes 1.4 times as long in a loop with few other
/// operators.
struct where_op : listed_operator, not_folded, needs_few_instructions, any_role, vectorised_everywhere, one_flop {
  static constexpr const char* name = "where";
  static constexpr int operands = 3;
  static constexpr bool has_condition = true;
  static constexpr dtype_set defined = defined_for::every_type | defined_for::own_types;
  static constexpr element_result result = element_result::same;
  static constexpr bool is_exact = true, ignores_sign = true;
  template <class T>
  [[gnu::always_inline]] static T value(bool which, T on_true, T on_false) {
#if !defined(__clang__)
    if constexpr (std::is_floating_point_v<T>) {
      using bits = typename float_format<T>::bits;
      return of_mask(which ? static_cast<bits>(~bits{0}) : bits{0}, on_true, on_false);
    }
#endif
    return which ? on_true : on_false;
  }
  static constexpr operator_class meets(const node&, monoid) { return {partial_class::all, 1}; }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

/// Calls a function of the user. The node stores the function's types, value and gradient (map_function).
struct map_op : listed_operator, keeps_type, not_folded, needs_function, any_role, vectorised_everywhere, one_flop, regards_sign {
  static constexpr const char* name = "map";
  static constexpr int operands = loop_facts::any_number;
  static constexpr dtype_set defined{};
  static constexpr bool is_exact = false;
  static constexpr void value() {}
  static constexpr operator_class meets(const auto& n, monoid) {
    return {partial_class::none, n.type == dtype::pred ? every_operand : 0U};
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
