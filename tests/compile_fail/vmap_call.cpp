// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: vmap: the function does not accept these arguments
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto product = [](value x, value w) { return x * w; };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return vmap(product)(x, x);
#else
  return vmap(product)(x);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
