// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 yee-mpi --cells 500x500
// args: --cells 60x41 --frames 2
// ranks: 2 3

#include "cavity.hpp"

#include <string>

#include "../over_mpi.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: mpirun -n RANKS yee-mpi [--cells NxM] [--steps N] [--frames N] [--out DIR]\n" + std::string(yee::options_text);
  return over_mpi(argc, argv, usage.c_str(), [&](int ranks, bool is_first) {
    auto o = yee::parse(argc, argv, false);
    if (!is_first) o.out.clear();
    return yee::simulate(o, ranks, run_over_mpi);
  });
}
