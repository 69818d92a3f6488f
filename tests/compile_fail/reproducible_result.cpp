// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: reproducible: the function returns a value, or a tuple or struct of values
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/reproducible.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto twice = [](value x) { return x + x; };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return reproducible(twice)(x);
#else
  return reproducible([](value) { return 2.0; })(x);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
