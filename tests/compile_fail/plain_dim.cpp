// SPDX-License-Identifier: Apache-2.0
// The dim is a plain integer next to another integer.
// expect: gspmd: the dimension is along(0) and not a plain integer; write it after the number
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto flow = [](auto u) {
#ifdef FIXED
  return u - roll(u, 1, along(0));
#else
  return u - roll(u, 1, 0);  // <- here
#endif
};
using step = compile<flow, mesh<axis<"x", 2>>, input<float, shape<64, 32>, split<"x", _>>>;

int main() {
  array<float> u({64, 32});
  auto y = run<step>(simulated{}, u);  // <- here
  return y[0] > 0;
}
