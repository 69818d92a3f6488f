// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a stencil reads further than its radius says
// expect: stencil at stencil_radius.cpp:
// expect: reads -2 along dim 1
// expect: beyond its radius of 1
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto difference = [](auto x) {
#ifdef FIXED
  return stencil<1, 2>([](auto u) { return u(0, 1) - u(0, -2); }, x);
#else
  return stencil<1, 1>([](auto u) { return u(0, 1) - u(0, -2); }, x);
#endif
};
using step = compile<difference, four, input<float, shape<64, 512>, split<"x", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
