// SPDX-License-Identifier: Apache-2.0
// The main functions of examples that are planned at run time. Includes no header of gspmd, so that a main.cpp compiles
// fast.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace gspmd::dynamic {
struct any_array;   // gspmd/dynamic/program.hpp
class program;      // gspmd/dynamic/program.hpp
class native_code;  // gspmd/native/native_code.hpp
}  // namespace gspmd::dynamic

namespace examples {

/// The devices of an example: threads, or the processes of MPI.
struct machine {
  using arrays = std::vector<gspmd::dynamic::any_array>;
  using pointers = std::vector<const void*>;

  std::int64_t processes = 0;  // of MPI; 0 on threads, where an option sets the number of devices
  /// Runs a program once, from whole arrays to whole arrays.
  std::function<arrays(const gspmd::dynamic::program&, const pointers&)> run;
  /// Runs a program with native code for its loops.
  std::function<arrays(const gspmd::dynamic::native_code&, const pointers&)> run_native;
};

/// An example: parses the command line, computes, and returns the exit status.
using example = int(int argc, char** argv, const machine&);

/// The main of an example on threads.
int on_threads(int argc, char** argv, example* body);
/// The main of an example over MPI, with one device per process.
int over_mpi(int argc, char** argv, example* body);

}  // namespace examples
