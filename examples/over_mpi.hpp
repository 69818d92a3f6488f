// SPDX-License-Identifier: Apache-2.0
// Runs programs that were planned at run time over MPI. Compiled once for all examples.
#pragma once

#include <gspmd/dynamic/program.hpp>
#include <gspmd/native/native_code.hpp>

#include <functional>
#include <vector>

/// Runs a program once over all processes, from whole arrays to whole arrays.
std::vector<gspmd::dynamic::any_array> run_over_mpi(const gspmd::dynamic::program& program,
                                                    const std::vector<const void*>& inputs);

/// The same with native code for the program's loops.
std::vector<gspmd::dynamic::any_array> run_native_over_mpi(const gspmd::dynamic::native_code& program,
                                                           const std::vector<const void*>& inputs);

/// The main of an example with one device per process. Calls body(ranks, is_first). Only process 0 prints.
int over_mpi(int argc, char** argv, const char* usage, const std::function<int(int, bool)>& body);
