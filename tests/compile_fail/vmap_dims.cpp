// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: vmap: name one dim for each argument, vmap<0, not_mapped>(f), or none, and all are mapped along dim 0
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto product = [](value x, value w) { return x * w; };
constexpr auto program = [](auto x, auto w) {
#ifdef FIXED
  return vmap<0, 0>(product)(x, w);
#else
  return vmap<0>(product)(x, w);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>, input<float, shape<64, 32>>>;

int main() {
  array<float> x({64, 32}), w({64, 32});
  auto y = run<step>(simulated{}, x, w);
  return y[0] > 0;
}
