// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/detail/run/static_program.hpp"

namespace gspmd::detail {

GSPMD_COMPILED_ONCE(void run_fused_step<once>(const plan_view&, const plan_step&, const device_memory&, fused_rows_function,
                                              fused_rows_function, const fused_rows&, const void**, void**, std::int64_t*));
GSPMD_COMPILED_ONCE(void run_reduced_step<void>(const plan_view&, const plan_step&, const device_memory&, fused_rows_function,
                                                bool, fused_rows_function, const fused_rows&, const void**, void**, std::int64_t*,
                                                const reduction_kernel* const*, const void*));

}  // namespace gspmd::detail
