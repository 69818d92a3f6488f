// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 spectral-mpi --points 512
// args: --points 30 --steps 20 --frames 2
// ranks: 2 3

#include "flow.hpp"

#include <string>

#include "../over_mpi.hpp"

int main(int argc, char** argv) {
  const std::string usage = "usage: mpirun -n RANKS spectral-mpi [--points N] [--steps N] [--frames N] [--out DIR]\n" +
                            std::string(spectral::options_text);
  return over_mpi(argc, argv, usage.c_str(), [&](int ranks, bool is_first) {
    auto o = spectral::parse(argc, argv, false);
    o.devices = ranks;
    if (!is_first) o.out.clear();
    return spectral::simulate(o, run_over_mpi);
  });
}
