// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: reproducible: the arguments of the function are values, or tuples or structs of values
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/reproducible.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto scaled = [](auto x, auto by) { return x * by; };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return reproducible([](auto y) { return scaled(y, 2.0); })(x);
#else
  return reproducible(scaled)(x, 2.0);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
