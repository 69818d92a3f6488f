// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: slice the longer
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto total = [](auto cells, auto nodes) {
#ifdef FIXED
  return cells + slice(nodes, {0}, {16});
#else
  return cells + nodes;
#endif
};
using step = compile<total, mesh<axis<"x", 4>>, input<double, shape<16>, split<"x">>, input<double, shape<17>>>;

int main() {
  array<double> cells({16}), nodes({17});
  auto sum = run<step>(simulated{}, cells, nodes);  // <- here
  return sum[0] > 0;
}
