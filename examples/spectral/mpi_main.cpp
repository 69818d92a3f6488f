// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 spectral-mpi --points 512
// args: --points 30 --steps 20 --frames 2
// ranks: 2 3

#include "../common/machine.hpp"

namespace spectral {
examples::example simulate;  // flow.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, spectral::simulate); }
