// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"

/// The names of the elementwise operators, for tests that use few other names of gspmd::detail.
namespace elementwise_names {

using gspmd::detail::abs_op;
using gspmd::detail::add_op;
using gspmd::detail::and_op;
using gspmd::detail::atan2_op;
using gspmd::detail::cast_op;
using gspmd::detail::cbrt_op;
using gspmd::detail::ceil_op;
using gspmd::detail::code_of;
using gspmd::detail::compare_eq_op;
using gspmd::detail::compare_ge_op;
using gspmd::detail::compare_gt_op;
using gspmd::detail::compare_le_op;
using gspmd::detail::compare_lt_op;
using gspmd::detail::compare_ne_op;
using gspmd::detail::complex_op;
using gspmd::detail::conj_op;
using gspmd::detail::cos_op;
using gspmd::detail::divide_op;
using gspmd::detail::erf_inv_op;
using gspmd::detail::erf_op;
using gspmd::detail::exp_op;
using gspmd::detail::expm1_op;
using gspmd::detail::floor_op;
using gspmd::detail::fmod_op;
using gspmd::detail::imag_op;
using gspmd::detail::left_shift_op;
using gspmd::detail::log1p_op;
using gspmd::detail::log_op;
using gspmd::detail::map_op;
using gspmd::detail::max_op;
using gspmd::detail::min_op;
using gspmd::detail::multiply_op;
using gspmd::detail::negative_op;
using gspmd::detail::not_op;
using gspmd::detail::operator_code;
using gspmd::detail::operator_id;
using gspmd::detail::or_op;
using gspmd::detail::pow_op;
using gspmd::detail::real_op;
using gspmd::detail::relu_op;
using gspmd::detail::right_shift_op;
using gspmd::detail::rsqrt_op;
using gspmd::detail::sigmoid_op;
using gspmd::detail::sign_op;
using gspmd::detail::sin_op;
using gspmd::detail::sqrt_op;
using gspmd::detail::stop_gradient_op;
using gspmd::detail::subtract_op;
using gspmd::detail::tanh_op;
using gspmd::detail::threefry2x32_op;
using gspmd::detail::where_op;
using gspmd::detail::xor_op;

}  // namespace elementwise_names
