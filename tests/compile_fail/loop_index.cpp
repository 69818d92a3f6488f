// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: fori_loop: the body is called as body(i, carried...)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

#ifdef FIXED
constexpr auto grow = [](auto, auto t) { return t * 2.0; };
#else
constexpr auto grow = [](auto t) { return t * 2.0; };
#endif
constexpr auto program = [](auto x) {
  return fori_loop(100, grow, x);  // <- here
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
