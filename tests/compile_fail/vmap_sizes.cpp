// SPDX-License-Identifier: Apache-2.0
// expect: vmap at vmap_sizes.cpp:
// expect: are 64 examples along dim 0 of
// expect: argument 0, and 32 along dim 0 of
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto product = [](value x, value w) { return x * w; };
constexpr auto program = [](auto x, auto w) {
#ifdef FIXED
  return vmap<0, not_mapped>(product)(x, w);
#else
  return vmap(product)(x, w);
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>, input<float, shape<32>>>;

int main() {
  array<float> x({64, 32}), w({32});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
