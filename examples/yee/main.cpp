// SPDX-License-Identifier: Apache-2.0
// Maxwell's equations in a metal box on Yee's staggered grid, on threads.
// args: --cells 60x41 --mesh 2x2 --frames 3
// optimise: -O1
// precompiled: yes

#include "../common/machine.hpp"

namespace yee {
examples::example simulate;  // cavity.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, yee::simulate); }
