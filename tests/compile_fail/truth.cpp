// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: if, while, ?:, &&, || and ! do not work on a value
// expect: choose elements with where, a branch with cond
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return where(x > 0.0, x, -x);
#else
  if (x > 0.0) return x;  // <- here
  return -x;
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
