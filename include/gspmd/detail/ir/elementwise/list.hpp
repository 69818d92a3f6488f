// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/ir/elementwise/arithmetic.hpp"
#include "gspmd/detail/ir/elementwise/bits.hpp"
#include "gspmd/detail/ir/elementwise/choice.hpp"
#include "gspmd/detail/ir/elementwise/functions.hpp"
#include "gspmd/detail/ir/elementwise/order.hpp"
#include "gspmd/detail/support/mp11.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

/// The operators whose kernels the library compiles once, for programs that are planned at run time
/// (kernels/fused_kernels.hpp). The list contains exactly the structs whose `kernels` is library_kernels.
using listed_elementwise =
    boost::mp11::mp_list<abs_op, negative_op, sign_op, exp_op, log_op, sqrt_op, rsqrt_op, tanh_op, sigmoid_op, relu_op, sin_op,
                         cos_op, floor_op, ceil_op, not_op, expm1_op, log1p_op, erf_op, erf_inv_op, cbrt_op, real_op, imag_op,
                         conj_op, stop_gradient_op, cast_op, add_op, subtract_op, multiply_op, divide_op, max_op, min_op, pow_op,
                         and_op, or_op, xor_op, fmod_op, left_shift_op, right_shift_op, atan2_op, threefry2x32_op, complex_op,
                         compare_eq_op, compare_ne_op, compare_lt_op, compare_le_op, compare_gt_op, compare_ge_op, where_op,
                         map_op>;

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
