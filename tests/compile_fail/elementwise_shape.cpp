// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: elementwise_shape.cpp:17: operand 1
// expect: [512,256] and operand 0 is
// expect: [64,512]; dim 0 differs; a matrix
// expect: product is matmul(a, b), the
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return x * einsum<"df->d">(w);
#else
  return x * w;
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
