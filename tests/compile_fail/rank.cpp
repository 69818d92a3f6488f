// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a tensor has another number of dims than the operator names
// expect: einsum at rank.cpp:12: operand 1 of
// expect: 2 letters
// expect: [512,256,1] of rank 3
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
#ifdef FIXED
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;
#else
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256, 1>>>;
#endif

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
