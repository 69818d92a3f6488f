// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The functions that depend on no type of a program's, compiled here and not in every file: what compiled programs run with, and the
/// planner and the kernels of programs that are planned at run time.
///
/// Define GSPMD_PRECOMPILED for all files of a program, with the same flags for the processor and one BLAS, and include this in one
/// of them, before any other header of gspmd:
///
///     // gspmd.cpp, the whole file
///     #include <gspmd/precompiled.hpp>
///
/// GSPMD_PRECOMPILED_PART, defined before, is one part alone: 1 what every program runs with, 2 the planner, 4 the kernels of programs that
/// are planned at run time. Three files are compiled at once, and a program that plans nothing at run time needs the first one only. The
/// CMake targets gspmd::precompiled and gspmd::precompiled_run, which is part 1 alone, do all of it. A program with files of other flags
/// does not link: the undefined references name `precompiled_needs_one_march_and_one_blas_in_all_files`.
#if !defined(GSPMD_PRECOMPILED)
#error "gspmd: precompiled.hpp: define GSPMD_PRECOMPILED for all files of the program (CMake: link gspmd::precompiled)"
#elif defined(GSPMD_COMPILED_ONCE)
#error "gspmd: precompiled.hpp: include this header before any other header of gspmd"
#endif
#if !defined(GSPMD_PRECOMPILED_PART)
#define GSPMD_PRECOMPILED_HERE 7
#else
#define GSPMD_PRECOMPILED_HERE GSPMD_PRECOMPILED_PART
#endif

#if GSPMD_PRECOMPILED_HERE == 2 && defined(__OPTIMIZE__) && !defined(__clang__)
// In g++ 12 part 2 takes 0.7 of the time that it takes at -O2, and a plan of 393 operators 1.06; at -Os they take 0.7 and 1.7.
#pragma GCC optimize("O1")
#endif
#if GSPMD_PRECOMPILED_HERE != 1
#include "gspmd/dynamic.hpp"
#endif
#if (GSPMD_PRECOMPILED_HERE & 2) != 0
// Headers that dynamic.hpp does without, and which have functions of the planner.
#include "gspmd/detail/passes/carried/weight_updates.hpp"
#include "gspmd/detail/passes/list/pass_list.hpp"
#include "gspmd/detail/passes/typed/manual_regions.hpp"
#endif
#include "gspmd/gspmd.hpp"
