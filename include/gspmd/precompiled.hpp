// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The planner, the kernels and the texts that programs planned at run time need, compiled here and not in every file.
///
/// Define GSPMD_PRECOMPILED for all files of a program, with the same flags for the processor and one BLAS, and include this in one
/// of them, before any other header of gspmd:
///
///     // gspmd.cpp, the whole file
///     #include <gspmd/precompiled.hpp>
///
/// The CMake target gspmd::precompiled does both. A program with files of other flags does not link.
#if !defined(GSPMD_PRECOMPILED)
#error "gspmd: precompiled.hpp: define GSPMD_PRECOMPILED for all files of the program (CMake: link gspmd::precompiled)"
#elif defined(GSPMD_COMPILED_ONCE)
#error "gspmd: precompiled.hpp: include this header before any other header of gspmd"
#endif
#define GSPMD_PRECOMPILED_HERE 1

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
