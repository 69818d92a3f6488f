// SPDX-License-Identifier: Apache-2.0
// expect: vmap at vmap_result.cpp:
// expect: 1 does not depend on a mapped
// expect: argument, and out_dims requests its
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto both = [](value x, value w) { return std::tuple{x * w, w * w}; };
constexpr auto program = [](auto x, auto w) {
#ifdef FIXED
  return vmap<0, not_mapped>(both, out_dims<0, not_mapped>{})(x, w);
#else
  return vmap<0, not_mapped>(both, out_dims<0, 0>{})(x, w);
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>, input<float, shape<32>>>;

int main() {
  array<float> x({64, 32}), w({32});
  auto [y, z] = run<step>(simulated{}, x, w);  // <- here
  return y[0] > z[0];
}
