// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a slice or padding takes more elements than a dim has, or its stride is less than 1
// expect: slice at slice_stride.cpp:
// expect: stride of 0 along dim 0 of
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto part = [](auto x) {
#ifdef FIXED
  return slice(x, {8, 0}, {64, 512}, {2, 1});
#else
  return slice(x, {8, 0}, {64, 512}, {0, 1});
#endif
};
using step = compile<part, four, input<float, shape<64, 512>, split<"x", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
