// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the tensor does not have a named dim
// expect: shift at shift.cpp:
// expect: dim 2 is not
// expect: a dim of [64,512]; dims count from 0
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto difference = [](auto x) {
#ifdef FIXED
  return shift(x, 1, along(0)) - x;
#else
  return shift(x, 1, along(2)) - x;
#endif
};
using step = compile<difference, four, input<float, shape<64, 512>, split<"x", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
