// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: grad differentiates a float of rank 0
// expect: grad at loss.cpp:
// expect: f32[64]
// expect: sum or mean
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
  auto y = einsum<"bd,df->bf">(x, w);
#ifdef FIXED
  return grad(mean(y), w);
#else
  return grad(mean(y, {1}), w);
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
