// SPDX-License-Identifier: Apache-2.0
// Gravity between all pairs of bodies, by leapfrog, on threads.
// args: --bodies 150 --devices 4 --frames 3
// optimise: -O1
// precompiled: yes

#include "../common/machine.hpp"

namespace nbody {
examples::example simulate;  // gravity.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, nbody::simulate); }
