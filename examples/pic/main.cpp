// SPDX-License-Identifier: Apache-2.0
// Particles in cells: plasma oscillation and counter-streaming beams, on threads.
// args: --particles 3001 --devices 3 --frames 80
// optimise: -O1
// precompiled: yes

#include "../common/machine.hpp"

namespace pic {
examples::example simulate;  // plasma.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, pic::simulate); }
