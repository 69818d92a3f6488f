// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gspmd/detail/support/language.hpp"

/// Functions that do not depend on user types and take long to compile. Each function is a template with the argument
/// `once`. A header declares the function, and the file next to it with the ending `ipp` defines and instantiates it:
///
///     template <class = once>                                                    make_plan.hpp
///     plan plan_at_run_time(const graph& g, const mesh_shape& mesh);
///
///     template <class Once>                                                      make_plan.ipp
///     plan plan_at_run_time(const graph& g, const mesh_shape& mesh) { ... }
///     GSPMD_PLANNED_ONCE(plan plan_at_run_time<once>(const graph&, const mesh_shape&));
///
///     GSPMD_COMPILED_ONCE   part 1: for all programs: the runner, transports, checks, texts
///     GSPMD_PLANNED_ONCE    part 2: the planner for programs that are planned at run time; it runs for milliseconds
///     GSPMD_KERNELS_ONCE    part 4: the kernels of all element types for these programs
///     GSPMD_MPI_ONCE        part 8: the MPI backend (comm/mpi.hpp)
///
/// By default, a header includes its definitions at the end, so each file compiles the functions that it calls.
/// If GSPMD_PRECOMPILED is defined, only gspmd/precompiled.hpp includes the definitions, and other files do not read
/// them.
///
/// A template that user types instantiate too stays in the header. A file such as combine_rows_instances.ipp lists the
/// instances of the library. The header includes the list as `extern template`, and gspmd/precompiled.hpp includes it
/// again.
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
#define GSPMD_COMPILED_ONCE(...) extern template __VA_ARGS__
#define GSPMD_PLANNED_ONCE(...) extern template __VA_ARGS__
#define GSPMD_KERNELS_ONCE(...) extern template __VA_ARGS__
#endif
