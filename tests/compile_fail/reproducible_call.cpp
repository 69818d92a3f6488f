// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: reproducible: the arguments of the function are values, or tuples or structs of values, and there is one at least
#include <gspmd/gspmd.hpp>
#include <gspmd/reproducible.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return reproducible([](auto y) { return sum(y); })(x);
#else
  return reproducible([x] { return sum(x); })();  // <- here
#endif
};
using step = compile<program, pod, in<float, dims<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);
  return y[0] > 0;
}
