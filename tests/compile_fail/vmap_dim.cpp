// SPDX-License-Identifier: Apache-2.0
// expect: vmap at vmap_dim.cpp:
// expect: and has no dim 2 to be
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto energy = [](value x) { return sqrt(sum(x * x)); };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return vmap<1>(energy)(x);
#else
  return vmap<2>(energy)(x);
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
