// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "kernels.hpp"

// Two translation units, compiled for different processors and different BLAS. Each must run its own kernels.
std::string wrong_native_kernels();

int main() {
  const std::string wrong = wrong_kernels<false>(), wrong_native = wrong_native_kernels();
  if (!wrong.empty()) std::printf("%s is wrong\n", wrong.c_str());
  if (!wrong_native.empty()) std::printf("%s is wrong with -march=native\n", wrong_native.c_str());
  return wrong.empty() && wrong_native.empty() ? 0 : 1;
}
