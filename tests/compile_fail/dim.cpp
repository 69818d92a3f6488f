// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the tensor does not have a named dim
// expect: transpose at dim.cpp:
// expect: permutation must name each dim of
// expect: the operand [64,256] once
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return transpose(einsum<"bd,df->bf">(x, w), {1, 0});
#else
  return transpose(einsum<"bd,df->bf">(x, w), {1, 2});
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
