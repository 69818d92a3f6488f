// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: fori_loop: pass the carried values
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
  const auto add = [&](auto, auto t) { return t + x; };
#ifdef FIXED
  return fori_loop(100, add, constant(x, {64, 32}, 0.0F));
#else
  return fori_loop(100, add, 0.0);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
