// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: mesh: two axes have one name
// expect: 0 and 1
// expect: both named `data`
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
#else
using pod = mesh<axis<"data", 2>, axis<"data", 2>>;
#endif

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, pod, input<float, shape<64, 512>, split<_, _>>, input<float, shape<512, 256>>>;

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
