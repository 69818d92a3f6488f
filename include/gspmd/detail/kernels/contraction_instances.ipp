// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/kernels/contraction.hpp"

namespace gspmd::detail {
inline namespace GSPMD_TARGET {

GSPMD_COMPILED_ONCE(void run_contraction<float, plain_spec<contraction_plan>>(const contraction_plan&, const std::int64_t*,
                                                                              const void*, const void*, void*, std::byte*, bool,
                                                                              bool));
GSPMD_COMPILED_ONCE(void run_contraction<double, plain_spec<contraction_plan>>(const contraction_plan&, const std::int64_t*,
                                                                               const void*, const void*, void*, std::byte*, bool,
                                                                               bool));

}  // namespace GSPMD_TARGET
}  // namespace gspmd::detail
