// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a mesh axis splits at most one dim of a tensor
// expect: reshard at axis_used_twice.cpp:
// expect: axis `data` is used twice
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
  auto y = einsum<"bd,df->bf">(x, w);
#ifdef FIXED
  return reshard(y, split<"data", "model">{});
#else
  return reshard(y, split<"data", "model,data">{});
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
