// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: no mesh axes have the requested number of devices
// expect: split_dim at parts.cpp:
// expect: of mesh axes has 3 devices
// expect: data,model
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) {
#ifdef FIXED
  return split_dim(einsum<"bd,df->bf">(x, w), 4, along(1));
#else
  return split_dim(einsum<"bd,df->bf">(x, w), 3, along(1));
#endif
};
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
