// SPDX-License-Identifier: Apache-2.0
// expect: another number of operands than the operator takes
// expect: optimization_barrier.cpp:17:
// expect: follows 8 values, and may follow 7;
#include <array>

#include <gspmd/gspmd.hpp>
#include <gspmd/transform/recompute.hpp>

using namespace gspmd;

constexpr auto program = [](auto x) {
  const value a = 2.0F * x, b = 3.0F * x;
#ifdef FIXED
  return optimization_barrier(x, std::array{a, b, a, b, a, b, a}) + b;
#else
  return optimization_barrier(x, std::array{a, b, a, b, a, b, a, b}) + b;
#endif
};
using step = compile<program, mesh<axis<"data", 2>>, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
