// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a sharding has one entry for each dim of its tensor
// expect: input 0: the sharding names 1 dim
// expect: the tensor has 2
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
#ifdef FIXED
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;
#else
using step = compile<product, pod, input<float, shape<64, 512>, split<"data">>, input<float, shape<512, 256>>>;
#endif

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
