// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: x == y: a value has no data to compare while the program is traced; equal(x, y) gives
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x, auto y) {
#ifdef FIXED
  return where(equal(x, y), x, 0.0);
#else
  return where(x == y, x, 0.0);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>, input<float, shape<64, 32>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x, x);  // <- here
  return y[0] > 0;
}
