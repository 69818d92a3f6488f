// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 3 npb-mpi ep S
// args: all S
// ranks: 2 3

#include "kernels.hpp"

#include <string>
#include <type_traits>
#include <vector>

#include "../command_line.hpp"
#include "../over_mpi.hpp"

constexpr const char* usage =
    "usage: mpirun -n RANKS npb-mpi KERNEL CLASS [native]\n"
    "  KERNEL       its two letters, ep say, or all\n"
    "  CLASS        S, W or A\n"
    "  native       loops are made by the system's compiler, and kept\n";

int main(int argc, char** argv) {
  return over_mpi(argc, argv, usage, [&](int ranks, bool) {
    const auto o = npb::parse(argc, argv);
    const auto run = []<class Program>(const Program& program, const std::vector<const void*>& inputs) {
      if constexpr (std::is_same_v<Program, gspmd::dynamic::native_code>) return run_native_over_mpi(program, inputs);
      else return run_over_mpi(program, inputs);
    };
    if (argc > o.read) throw command_line::usage_error(std::string(argv[o.read]) + ": the number of devices is mpirun's");
    return npb::run_kernels(o, npb::machine{ranks, npb::preparing(o.is_native, GSPMD_EXAMPLE_DIR "/../../include", run)});
  });
}
