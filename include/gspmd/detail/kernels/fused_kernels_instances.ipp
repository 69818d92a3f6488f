// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/kernels/fused_kernels.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(const scalar_op&));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_of_indices<once>(dtype));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(const scalar_op&, const scalar_op&, int, const scalar_code&));
GSPMD_KERNELS_ONCE(fused_kernel fused_kernel_for<once>(fused_kernel, fused_kernel, int));
GSPMD_KERNELS_ONCE(fused_sum_kernel fused_sum_kernel_for<once>(fused_kernel, bool));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
