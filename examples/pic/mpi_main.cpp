// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 pic-mpi --particles 1000000
// args: --particles 3001 --frames 80
// ranks: 2 3

#include "plasma.hpp"

#include <string>

#include "../over_mpi.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: mpirun -n RANKS pic-mpi [--particles N] [--points N] [--frames N] [--out DIR]\n" + std::string(pic::options_text);
  return over_mpi(argc, argv, usage.c_str(), [&](int ranks, bool is_first) {
    auto o = pic::parse(argc, argv, false);
    o.devices = ranks;
    if (!is_first) o.out.clear();
    return pic::simulate(o, run_over_mpi);
  });
}
