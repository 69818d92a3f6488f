// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 yee-mpi --cells 500x500
// args: --cells 60x41 --frames 2
// ranks: 2 3

#include "../common/machine.hpp"

namespace yee {
examples::example simulate;  // cavity.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, yee::simulate); }
