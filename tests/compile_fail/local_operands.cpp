// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: another number of operands than the operator takes
// expect: of the call: 2
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto copy = local_op<"b->b">([](auto x, auto y) {
  for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i);
});
constexpr auto program = [](auto x) {
#ifdef FIXED
  return copy(x);
#else
  return copy(x, x);  // <- here
#endif
};
using step = compile<program, mesh<axis<"data", 2>>, input<float, shape<8>, split<"data">>>;

int main() {
  array<float> x({8});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
