// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 nbody-mpi --bodies 10000
// args: --bodies 150 --frames 2
// ranks: 2 3

#include "../common/machine.hpp"

namespace nbody {
examples::example simulate;  // gravity.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, nbody::simulate); }
