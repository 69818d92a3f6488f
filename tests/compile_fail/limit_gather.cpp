// SPDX-License-Identifier: Apache-2.0
// expect: limit_gather.cpp:
// expect: result of an einsum of two
// expect: operands, not of relu
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"x", 4>>;

#ifdef FIXED
constexpr auto layer = [](auto x, auto w) { return relu(limit_gather(einsum<"bd,df->bf">(x, w), 1024)); };
#else
constexpr auto layer = [](auto x, auto w) { return limit_gather(relu(einsum<"bd,df->bf">(x, w)), 1024); };
#endif
using step = compile<layer, pod, input<float, shape<64, 16>, split<"x", _>>, input<float, shape<16, 32>, split<_, "x">>>;

int main() {
  array<float> x({64, 16}), w({16, 32});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
