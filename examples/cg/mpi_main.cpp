// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 3 cg-mpi --side 1000
// args: --side 60
// ranks: 2 3

#include "poisson.hpp"

#include <string>

#include "../over_mpi.hpp"

int main(int argc, char** argv) {
  const std::string usage =
      "usage: mpirun -n RANKS cg-mpi [--side N] [--between N] [--out FILE]\n" + std::string(cg::options_text);
  return over_mpi(argc, argv, usage.c_str(), [&](int ranks, bool is_first) {
    auto o = cg::parse(argc, argv, false);
    o.devices = ranks;
    if (!is_first) o.out.clear();
    return cg::solve(o, run_over_mpi);
  });
}
