// SPDX-License-Identifier: Apache-2.0
// The header includes this file at its end, and gspmd/precompiled.hpp includes it again.
#include "gspmd/dynamic/program.hpp"

namespace gspmd {
namespace detail {
inline namespace GSPMD_TARGET {

GSPMD_KERNELS_ONCE(ready_step::joint_function joint_function_of<threads_communicator>(const plan_step&));
GSPMD_KERNELS_ONCE(ready_step::joint_function joint_function_of<simulated_communicator>(const plan_step&));

}  // namespace GSPMD_TARGET
}  // namespace detail

namespace dynamic {

GSPMD_KERNELS_ONCE(void program::run_on<threads_communicator>(threads_communicator&, const void* const*, void* const*) const);
GSPMD_KERNELS_ONCE(void program::run_on<simulated_communicator>(simulated_communicator&, const void* const*, void* const*) const);

}  // namespace dynamic
}  // namespace gspmd
