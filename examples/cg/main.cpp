// SPDX-License-Identifier: Apache-2.0
// Poisson's equation on a gear with a hole, by conjugate gradients with a sparse matrix, on threads.
// args: --side 60 --devices 3
// optimise: -O1
// precompiled: yes

#include "../common/machine.hpp"

namespace cg {
examples::example solve;  // poisson.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, cg::solve); }
