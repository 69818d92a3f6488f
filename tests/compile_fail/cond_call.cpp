// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: cond: both bodies are called as body(arguments...)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto same = [](auto a) { return a; };
#ifdef FIXED
constexpr auto other = [](auto a) { return -a; };
#else
constexpr auto other = [] { return 0.0; };
#endif
constexpr auto program = [](auto x) {
  return cond(sum(x) > 0.0, same, other, x);  // <- here
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
