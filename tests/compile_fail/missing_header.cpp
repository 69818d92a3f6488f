// SPDX-License-Identifier: Apache-2.0
// alone: yes
// An operator of a header that is not included.
// expect: gspmd: no function attention takes these arguments; if its header is missing, add #include <gspmd/nn.hpp>
#include <gspmd/core.hpp>
#ifdef FIXED
#include <gspmd/nn.hpp>
#endif

using namespace gspmd;

constexpr auto layer = [](auto q, auto k, auto v) {
  return attention(q, k, v);  // <- here
};
using heads = input<float, shape<2, 4, 8, 16>, split<"x", _, _, _>>;
using step = compile<layer, mesh<axis<"x", 2>>, heads, heads, heads>;

int main() {
  array<float> x({2, 4, 8, 16});
  auto y = run<step>(simulated{}, x, x, x);  // <- here
  return y[0] > 0;
}
