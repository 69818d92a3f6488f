// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the tensor does not have a named dim, or the operator does not accept it
// expect: flip at flip.cpp:
// expect: [64,512] twice; name it
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto turned = [](auto x) {
#ifdef FIXED
  return flip(x, {0, 1});
#else
  return flip(x, {1, 1});
#endif
};
using step = compile<turned, four, input<float, shape<64, 512>, split<"x", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
