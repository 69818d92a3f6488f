// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: mesh: device_order must name every device id from 0 once
// expect: device_order names the device 3
// expect: twice
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
using pod = mesh<axis<"data", 2>, axis<"model", 2>, device_order<0, 1, 3, 2>>;
#else
using pod = mesh<axis<"data", 2>, axis<"model", 2>, device_order<0, 1, 3, 3>>;
#endif

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
