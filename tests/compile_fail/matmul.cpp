// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: matmul at matmul.cpp:13: the
// expect: operands are [64,512] and
// expect: [128,256]; the last dim of the
// expect: transpose one
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) { return matmul(x, w); };
#ifdef FIXED
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;
#else
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<128, 256>>>;
#endif

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
