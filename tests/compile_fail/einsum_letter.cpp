// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an einsum equation has the form `ab,bc->ac`
// expect: operand has the letter `m`, only i,
// expect: k, j; write `j` instead
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr auto product = [](auto a, auto b) { return einsum<"ik,kj->ij">(a, b); };
#else
constexpr auto product = [](auto a, auto b) { return einsum<"ik,kj->im">(a, b); };  // <- here
#endif
using step = compile<product, mesh<axis<"x", 4>>, input<double, shape<100, 80>, split<"x", _>>, input<double, shape<80, 60>>>;

int main() {
  array<double> a({100, 80}), b({80, 60});
  auto c = run<step>(simulated{}, a, b);
  return c[0] > 0;
}
