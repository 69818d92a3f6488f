// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: vmap: no argument is mapped; name a dim of an argument, or call the function without vmap
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto energy = [](value x) { return sum(x * x); };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return vmap<0>(energy)(x);
#else
  return vmap<not_mapped>(energy)(x);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
