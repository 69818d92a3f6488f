// SPDX-License-Identifier: Apache-2.0
// Running programs that were planned at run time over MPI, compiled once for all examples.
#pragma once

#include <gspmd/dynamic/native_code.hpp>
#include <gspmd/dynamic/program.hpp>

#include <functional>
#include <vector>

/// Runs a program once over all processes: whole arrays in, whole arrays out.
std::vector<gspmd::dynamic::any_array> run_over_mpi(const gspmd::dynamic::program& program,
                                                    const std::vector<const void*>& inputs);

/// The same with the program's loops made by the system's compiler.
std::vector<gspmd::dynamic::any_array> run_native_over_mpi(const gspmd::dynamic::native_code& program,
                                                           const std::vector<const void*>& inputs);

/// The main of an example with one device per process: body(ranks, is_first), of which process 0 alone talks.
int over_mpi(int argc, char** argv, const char* usage, const std::function<int(int, bool)>& body);
