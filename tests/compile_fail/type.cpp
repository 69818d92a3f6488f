// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operand has an element type that the operator does not take
// expect: add at type.cpp:16: operand 1 is
// expect: s32 and must be f32; convert it
// expect: convert it
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return x + cast<float>(w);
#else
  return x + w;
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<std::int32_t, shape<512>>>;

int main() {
  array<float> x({64, 512});
  array<std::int32_t> w({512});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
