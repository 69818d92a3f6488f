// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

/// Functions that do not depend on user types and take long to compile. By default they are compiled where they are
/// used. If GSPMD_PRECOMPILED is defined, the files that include gspmd/precompiled.hpp compile them, and all other
/// files only declare the instances. So each function is a template with the argument `once`:
///
///     template <class = once>
///     plan plan_at_run_time(const graph& g, const mesh_shape& mesh) { ... }
///     GSPMD_PLANNED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&));
///
///     GSPMD_COMPILED_ONCE   part 1: for all programs: the runner, transports, checks, texts
///     GSPMD_PLANNED_ONCE    part 2: the planner for programs that are planned at run time; it runs for milliseconds
///     GSPMD_KERNELS_ONCE    part 4: the kernels of all element types for these programs
///     GSPMD_MPI_ONCE        part 8: the MPI backend (comm/mpi.hpp)
///
/// The functions are not inline, because a compiler reads the bodies of inline functions anyway. Code that depends on
/// the processor is in the namespace GSPMD_TARGET. So a file that was compiled with other flags fails to link, and does
/// not run kernels for another processor.
namespace gspmd::detail {
struct once;
}  // namespace gspmd::detail

#if !defined(GSPMD_PRECOMPILED)
#define GSPMD_COMPILED_ONCE(...) static_assert(true)
#define GSPMD_PLANNED_ONCE(...) static_assert(true)
#define GSPMD_KERNELS_ONCE(...) static_assert(true)
#else
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 1) != 0
#define GSPMD_COMPILED_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_COMPILED_ONCE(...) extern template __VA_ARGS__
#endif
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 2) != 0
#define GSPMD_PLANNED_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_PLANNED_ONCE(...) extern template __VA_ARGS__
#endif
#if defined(GSPMD_PRECOMPILED_HERE) && (GSPMD_PRECOMPILED_HERE & 4) != 0
#define GSPMD_KERNELS_ONCE(...) template __VA_ARGS__
#else
#define GSPMD_KERNELS_ONCE(...) extern template __VA_ARGS__
#endif
#endif
