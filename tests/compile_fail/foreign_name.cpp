// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: there is no exp; write exponential(x)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return exponential(x) * 2.0;
#else
  return exp(x) * 2.0;  // <- here
#endif
};
using step = compile<program, pod, in<float, dims<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
