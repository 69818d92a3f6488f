// SPDX-License-Identifier: Apache-2.0
// The NAS Parallel Benchmarks in the global view, on threads: npb ep --class S --devices 4
// args: all --devices 2 4
// precompiled: yes

#include "../common/machine.hpp"

namespace npb {
examples::example run;  // kernels.cpp
}

int main(int argc, char** argv) { return examples::on_threads(argc, argv, npb::run); }
