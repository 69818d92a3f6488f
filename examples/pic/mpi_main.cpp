// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 4 pic-mpi --particles 1000000
// args: --particles 3001 --frames 80
// ranks: 2 3

#include "../common/machine.hpp"

namespace pic {
examples::example simulate;  // plasma.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, pic::simulate); }
