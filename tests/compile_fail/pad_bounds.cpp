// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a slice or padding takes more elements than a dim has, or its stride is less than 1
// expect: pad at pad_bounds.cpp:
// expect: before and -64 after the 64
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto part = [](auto x) {
#ifdef FIXED
  return pad(x, {1, 0}, {1, 0});
#else
  return pad(x, {-3, 0}, {-64, 0});
#endif
};
using step = compile<part, four, input<float, shape<64, 512>, split<"x", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
