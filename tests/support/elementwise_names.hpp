// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ops/elementwise.hpp"

/// The names of the elementwise operators, for tests that use few other names of gspmd::detail.
namespace elementwise_names {

using gspmd::detail::abs_op;
using gspmd::detail::add_op;
using gspmd::detail::and_op;
using gspmd::detail::atan2_op;
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
using gspmd::detail::convert_op;
using gspmd::detail::cosine_op;
using gspmd::detail::divide_op;
using gspmd::detail::erf_inv_op;
using gspmd::detail::erf_op;
using gspmd::detail::expm1_op;
using gspmd::detail::exponential_op;
using gspmd::detail::floor_op;
using gspmd::detail::imag_op;
using gspmd::detail::log1p_op;
using gspmd::detail::log_op;
using gspmd::detail::logistic_op;
using gspmd::detail::map_op;
using gspmd::detail::maximum_op;
using gspmd::detail::minimum_op;
using gspmd::detail::multiply_op;
using gspmd::detail::negate_op;
using gspmd::detail::not_op;
using gspmd::detail::operator_code;
using gspmd::detail::operator_id;
using gspmd::detail::or_op;
using gspmd::detail::power_op;
using gspmd::detail::real_op;
using gspmd::detail::relu_op;
using gspmd::detail::remainder_op;
using gspmd::detail::rsqrt_op;
using gspmd::detail::select_op;
using gspmd::detail::shift_left_op;
using gspmd::detail::shift_right_op;
using gspmd::detail::sign_op;
using gspmd::detail::sine_op;
using gspmd::detail::sqrt_op;
using gspmd::detail::stop_gradient_op;
using gspmd::detail::subtract_op;
using gspmd::detail::tanh_op;
using gspmd::detail::threefry2x32_op;
using gspmd::detail::xor_op;

}  // namespace elementwise_names
