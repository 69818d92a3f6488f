// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compiles the functions that depend on none of your types, so that other files do not compile them: the functions
/// that run compiled programs, the planner, and the kernels of programs planned at run time.
///
/// Define GSPMD_PRECOMPILED for all files of a program, with the same processor flags and the same BLAS. Include this
/// header in one file:
///
///     // gspmd.cpp, the whole file
///     #include <gspmd/precompiled.hpp>
///
/// For a program that includes gspmd/mpi.hpp, define GSPMD_PRECOMPILED_MPI too. Then the file also compiles the MPI
/// backend, and the other files compile no MPI code.
///
/// If GSPMD_PRECOMPILED_PART is defined before the include, the file compiles a single part. Part 1 runs every program,
/// part 2 is the planner, part 4 has the kernels of programs planned at run time, and part 8 is the MPI backend. Files
/// with different parts can be compiled in parallel. A program that plans nothing at run time does not need parts 2
/// and 4.
/// The CMake target gspmd::precompiled does all this for parts 1, 2 and 4. The target gspmd::precompiled_run is part 1
/// alone, gspmd::fast is part 1 and a precompiled header, and gspmd::precompiled_mpi is parts 1 and 8.
/// A program with files of different flags does not link. The undefined references name
/// `precompiled_needs_one_march_and_one_blas_in_all_files`.
#if !defined(GSPMD_PRECOMPILED)
#error "gspmd: precompiled.hpp: define GSPMD_PRECOMPILED for all files of the program (CMake: link gspmd::precompiled)"
#endif
#if defined(GSPMD_PRECOMPILED_PART)
#define GSPMD_PRECOMPILED_HERE GSPMD_PRECOMPILED_PART
#elif defined(GSPMD_PRECOMPILED_MPI)
#define GSPMD_PRECOMPILED_HERE 15
#else
#define GSPMD_PRECOMPILED_HERE 7
#endif
#if (GSPMD_PRECOMPILED_HERE & 8) != 0 && !defined(GSPMD_PRECOMPILED_MPI)
#error "gspmd: precompiled.hpp: define GSPMD_PRECOMPILED_MPI for all files of the program (CMake: link gspmd::precompiled_mpi)"
#endif

#if GSPMD_PRECOMPILED_HERE == 2 && defined(__OPTIMIZE__) && !defined(__clang__)
// With g++ 12 at -O1, part 2 compiles in 0.7 of the time at -O2. A plan of 393 operators then takes 1.06 of the time.
// At -Os the ratios are 0.7 and 1.7.
#pragma GCC optimize("O1")
#endif
#if (GSPMD_PRECOMPILED_HERE & 7) != 0
#include "gspmd/gspmd.hpp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 6) != 0
#include "gspmd/detail/passes/carried/weight_updates.hpp"
#include "gspmd/detail/passes/ghost/ghost_zones.hpp"
#include "gspmd/detail/passes/list/pass_list.hpp"
#include "gspmd/detail/passes/typed/manual_regions.hpp"
#include "gspmd/detail/run/fused_step.hpp"
#include "gspmd/dynamic.hpp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 8) != 0
#include "gspmd/mpi.hpp"
#endif

// The files *.ipp instantiate the functions of the parts. All headers with instances must be included before.
#if (GSPMD_PRECOMPILED_HERE & 1) != 0
#undef GSPMD_COMPILED_ONCE
#define GSPMD_COMPILED_ONCE(...) template __VA_ARGS__
#include "gspmd/comm/threads.ipp"
#include "gspmd/detail/driver/given_arguments.ipp"
#include "gspmd/detail/kernels/combine_rows.ipp"
#include "gspmd/detail/kernels/combine_rows_instances.ipp"
#include "gspmd/detail/kernels/contraction_instances.ipp"
#include "gspmd/detail/kernels/fill.ipp"
#include "gspmd/detail/report/explain_plan.ipp"
#include "gspmd/detail/run/bound_devices.ipp"
#include "gspmd/detail/run/checked_memory.ipp"
#include "gspmd/detail/run/checked_run.ipp"
#include "gspmd/detail/run/runner.ipp"
#include "gspmd/detail/run/static_program_instances.ipp"
#include "gspmd/detail/support/no_memory.ipp"
#include "gspmd/detail/transport/box.ipp"
#include "gspmd/detail/transport/exclusive_use.ipp"
#include "gspmd/detail/transport/shared_memory.ipp"
#include "gspmd/detail/transport/threads/kept_copies.ipp"
#include "gspmd/error.ipp"
#include "gspmd/plan/budget.ipp"
#include "gspmd/program/array.ipp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 2) != 0
#undef GSPMD_PLANNED_ONCE
#define GSPMD_PLANNED_ONCE(...) template __VA_ARGS__
#include "gspmd/detail/passes/carried/weight_updates_instances.ipp"
#include "gspmd/detail/passes/ghost/ghost_zones_instances.ipp"
#include "gspmd/detail/passes/list/at_run_time.ipp"
#include "gspmd/detail/passes/list/compute_again.ipp"
#include "gspmd/detail/passes/list/make_plan.ipp"
#include "gspmd/detail/passes/list/pass_list.ipp"
#include "gspmd/detail/passes/list/pass_list_instances.ipp"
#include "gspmd/detail/passes/typed/automatic_axes.ipp"
#include "gspmd/detail/passes/typed/find_types_instances.ipp"
#include "gspmd/detail/passes/typed/manual_regions_instances.ipp"
#include "gspmd/detail/passes/typed/type_program.ipp"
#include "gspmd/dynamic/program.ipp"
#include "gspmd/layouts/xla_sharding.ipp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 4) != 0
#undef GSPMD_KERNELS_ONCE
#define GSPMD_KERNELS_ONCE(...) template __VA_ARGS__
#include "gspmd/detail/kernels/fused_kernels_instances.ipp"
#include "gspmd/detail/run/interpreter.ipp"
#include "gspmd/detail/run/local_function_step_instances.ipp"
#include "gspmd/dynamic/program_instances.ipp"
#include "gspmd/index/detail/fold_step_instances.ipp"
#include "gspmd/index/detail/index_step_instances.ipp"
#include "gspmd/index/detail/scan_step_instances.ipp"
#include "gspmd/index/detail/sort_step_instances.ipp"
#include "gspmd/windows/detail/window_step_instances.ipp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 8) != 0
#define GSPMD_MPI_ONCE(...) template __VA_ARGS__
#include "gspmd/comm/mpi.ipp"
#endif
