// SPDX-License-Identifier: Apache-2.0
// A flow on a torus by Fourier transforms, on threads.
// args: --points 30 --devices 3 --steps 10 --frames 2
// optimise: -O1
// precompiled: yes

#include "../common/machine.hpp"

namespace spectral {
examples::example simulate;  // flow.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, spectral::simulate); }
