// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: x[i]: a program works on whole tensors and not on their elements
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return x * 2.0;
#else
  return x[0] * 2.0;  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
