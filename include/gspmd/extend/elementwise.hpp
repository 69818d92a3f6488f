// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "gspmd/detail/kernels/fused_kernels.hpp"
#include "gspmd/detail/ops/elementwise_gradients.hpp"
#include "gspmd/detail/ops/registry.hpp"
#include "gspmd/ops/elementwise.hpp"

/// The header for authors of elementwise operators. Write one struct that states every fact of `complete_elementwise`,
/// and one function that calls `extend::elementwise<O>`. No list, switch or table changes. A missing fact is a compile
/// error that names the fact. docs/extending/elementwise.md adds `logaddexp`.
namespace gspmd::extend {

// Facts and their values (detail/ir/elementwise/facts.hpp).
using detail::complete_elementwise;
using detail::dtype_set;
using detail::element_result;
using detail::every_operand;
using detail::folding;
using detail::kernel_home;
using detail::kernels_of_program;
using detail::loop_facts;
using detail::neutral_operand;
using detail::operator_class;
using detail::partial_class;
namespace defined_for = detail::defined_for;

// Base classes for facts that many operators share.
using detail::any_role;
using detail::elementwise_struct;
using detail::grows_with_operand;
using detail::has_no_gradient;
using detail::keeps_type;
using detail::needs_few_instructions;
using detail::needs_function;
using detail::needs_instruction;
using detail::needs_vectorised_function;
using detail::not_folded;
using detail::one_flop;
using detail::reduces_operands;
using detail::regards_sign;
using detail::vectorised_everywhere;
using detail::without_condition;

// For gradients: `term::of<O>(x...)` adds an operator, and `term` has + - * /.
using detail::gradient_builder;
using detail::node;
using detail::term;

// Operators for use in values and gradients: add_op::value(a, b), term::of<log_op>(x).
using detail::abs_op;
using detail::add_op;
using detail::compare_eq_op;
using detail::compare_gt_op;
using detail::compare_lt_op;
using detail::cos_op;
using detail::divide_op;
using detail::exp_op;
using detail::expm1_op;
using detail::log1p_op;
using detail::log_op;
using detail::max_op;
using detail::min_op;
using detail::multiply_op;
using detail::negative_op;
using detail::pow_op;
using detail::rsqrt_op;
using detail::sigmoid_op;
using detail::sign_op;
using detail::sin_op;
using detail::sqrt_op;
using detail::subtract_op;
using detail::tanh_op;
using detail::where_op;

/// Adds the operator O with these operands: tensors of one type, or numbers. The tensors are broadcast to one shape.
template <class O>
constexpr value elementwise(std::initializer_list<operand> operands) {
  if constexpr (complete_elementwise<O>) {
    constexpr detail::operator_code code = detail::code_of<O>;
    return detail::elementwise(code, operands, operands.begin()->at);
  } else {
    detail::require_complete<O>();
    return operands.begin()->tensor();
  }
}

}  // namespace gspmd::extend
