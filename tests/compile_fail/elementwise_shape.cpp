// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: add at elementwise_shape.cpp:17:
// expect: operand 1 is [512,256]
// expect: [64,512]
// expect: broadcast one of
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return x + einsum<"df->d">(w);
#else
  return x + w;
#endif
};
using step = compile<product, pod, in<float, dims<64, 512>, split<"data", _>>, in<float, dims<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
