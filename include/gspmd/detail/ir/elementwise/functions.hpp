// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "gspmd/detail/ir/elementwise/facts.hpp"
#include "gspmd/detail/ir/error_function.hpp"
#include "gspmd/detail/ir/scalar_math.hpp"
#include "gspmd/detail/ir/trigonometry.hpp"

/// Functions of floats. Compilers vectorise all except cbrt and atan2, which call the C library for each element.
namespace gspmd::detail {
inline namespace GSPMD_TARGET {

struct float_function : one_function {
  static constexpr dtype_set defined = defined_for::real_floats;
  static constexpr bool is_exact = false;
};
struct growing_function : float_function, grows_with_operand {};
struct other_function : float_function, reduces_operands {};
/// A function that selects one of several polynomials.
struct function_of_polynomials {
  static constexpr loop_facts::vector_class vectors = loop_facts::vector_class::own_loop;
};

struct exp_op : growing_function, needs_vectorised_function {
  static constexpr const char* name = "exp";
  static constexpr dtype_set defined = defined_for::floats;
  template <class T>
  [[gnu::always_inline]] static T value(T x) {
    if constexpr (is_complex_element<T>)
      return {exponential(x.re) * sine_of<true>(x.im), exponential(x.re) * sine_of<false>(x.im)};
    else return exponential(x);
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct log_op : other_function, needs_vectorised_function {
  static constexpr const char* name = "log";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return logarithm(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct sqrt_op : other_function, needs_few_instructions {
  static constexpr const char* name = "sqrt";
  static constexpr bool is_exact = true;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return square_root(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct rsqrt_op : other_function, needs_few_instructions {
  static constexpr const char* name = "rsqrt";
  static constexpr bool is_exact = true;
  template <class T>
  [[gnu::always_inline]] static T value(T x) {
    return T(1) / square_root(x);
  }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct tanh_op : growing_function, needs_vectorised_function {
  static constexpr const char* name = "tanh";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return hyperbolic_tangent(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct sigmoid_op : growing_function, needs_vectorised_function {
  static constexpr const char* name = "sigmoid";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return logistic_function(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct sin_op : other_function, needs_function {
  static constexpr const char* name = "sin";
  static constexpr loop_facts::vector_class vectors = function_of_polynomials::vectors;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return sine_of<false>(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct cos_op : other_function, needs_function {
  static constexpr const char* name = "cos";
  static constexpr loop_facts::vector_class vectors = function_of_polynomials::vectors;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return sine_of<true>(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct expm1_op : growing_function, needs_vectorised_function {
  static constexpr const char* name = "expm1";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return exponential_less_one(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct log1p_op : other_function, needs_vectorised_function {
  static constexpr const char* name = "log1p";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return logarithm_of_one_more(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct erf_op : growing_function, needs_function {
  static constexpr const char* name = "erf";
  static constexpr loop_facts::vector_class vectors = function_of_polynomials::vectors;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return error_function(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct erf_inv_op : other_function, needs_function {
  static constexpr const char* name = "erf_inv";
  static constexpr loop_facts::vector_class vectors = function_of_polynomials::vectors;
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return inverse_error_function(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct cbrt_op : growing_function, needs_function {
  static constexpr const char* name = "cbrt";
  [[gnu::always_inline]] static auto value(auto x) -> decltype(x) { return std::cbrt(x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};
struct atan2_op : other_function, needs_function {
  static constexpr const char* name = "atan2";
  static constexpr int operands = 2;
  [[gnu::always_inline]] static auto value(auto y, decltype(y) x) -> decltype(y) { return std::atan2(y, x); }
  static constexpr void gradient(gradient_builder& b, const node& n);
};

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
