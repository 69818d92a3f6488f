// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: reshape keeps the number of elements
// expect: reshape at reshape.cpp:
// expect: [64,256]
// expect: 16384
// expect: 12288
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return reshape(einsum<"bd,df->bf">(x, w), {64, 4, 64});
#else
  return reshape(einsum<"bd,df->bf">(x, w), {64, 3, 64});
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
