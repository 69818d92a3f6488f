// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/extend/elementwise.hpp"

// An elementwise operator outside of the library. It includes only public headers.
namespace new_operator {

using namespace gspmd::extend;

struct logaddexp_op : elementwise_struct,
                      keeps_type,             // no condition; the result has the type of the operands
                      not_folded,             // the planner does not compute its results
                      needs_function,         // not one instruction per element
                      any_role,               // neither a sum nor a product
                      vectorised_everywhere,  // no selection of a polynomial
                      one_flop,
                      regards_sign,
                      reduces_operands {  // operands that are partial sums are reduced first
  static constexpr const char* name = "logaddexp";
  static constexpr int operands = 2;
  static constexpr dtype_set defined = defined_for::real_floats;
  static constexpr bool is_exact = false;
  static constexpr gspmd::extend::kernel_home kernels = kernels_of_program();

  template <class T>
  [[gnu::always_inline]] static T value(T a, T b) {
    const T larger = max_op::value(a, b), apart = abs_op::value(a - b);
    const T below = where_op::value(a == b, T(0), apart);  // equal infinities have the difference NaN
    return larger + log1p_op::value(exp_op::value(-below));
  }
  static constexpr void gradient(gradient_builder& b, const node&) {
    const term dy = b.dy(), zero = dy.number(0);
    const term apart = term::of<where_op>(term::of<compare_eq_op>(b.in(0), b.in(1)), zero, b.in(0) - b.in(1));
    b.send(0, dy * term::of<sigmoid_op>(apart));
    b.send(1, dy * term::of<sigmoid_op>(-apart));
  }
};

/// Returns log(exp(a) + exp(b)), which overflows only if its result does.
constexpr gspmd::value logaddexp(gspmd::operand a, gspmd::operand b) { return elementwise<logaddexp_op>({a, b}); }

}  // namespace new_operator
