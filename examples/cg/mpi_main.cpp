// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 3 cg-mpi --side 1000
// args: --side 60
// ranks: 2 3

#include "../common/machine.hpp"

namespace cg {
examples::example solve;  // poisson.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, cg::solve); }
