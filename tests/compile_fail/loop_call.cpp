// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: fori_loop: one number, of trips: fori_loop(n, body, init...)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto grow = [](value i, value t) { return t * cast<float>(i); };
constexpr auto program = [](auto x) {
#ifdef FIXED
  return fori_loop(100, grow, x);
#else
  return fori_loop(0, 100, grow, x);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
