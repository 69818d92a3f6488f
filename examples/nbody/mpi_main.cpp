// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 nbody-mpi --bodies 10000
// args: --bodies 150 --frames 2
// ranks: 2 3

#include "gravity.hpp"

#include <string>

#include "../over_mpi.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: mpirun -n RANKS nbody-mpi [--bodies N] [--steps N] [--frames N] [--out DIR]\n" + std::string(nbody::options_text);
  return over_mpi(argc, argv, usage.c_str(), [&](int ranks, bool is_first) {
    auto o = nbody::parse(argc, argv, false);
    o.devices = ranks;
    if (!is_first) o.out.clear();
    return nbody::simulate(o, run_over_mpi);
  });
}
