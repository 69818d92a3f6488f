// SPDX-License-Identifier: Apache-2.0
// The same over MPI, one device per process: mpirun -n 3 npb-mpi ep --class S
// args: all
// ranks: 2 3

#include "../common/machine.hpp"

namespace npb {
examples::example run;  // kernels.cpp
}

int main(int argc, char** argv) { return examples::over_mpi(argc, argv, npb::run); }
