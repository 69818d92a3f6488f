// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a body of a loop or conditional does not fit
// expect: fori_loop at loop_body.cpp:
// expect: f32[64]
// expect: f32[64,512]
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto decay = [](auto x) {
#ifdef FIXED
  return fori_loop(
      10, [](value, value h) { return h * 0.5; }, x);
#else
  return fori_loop(
      10, [](value, value h) { return sum(h, {1}); }, x);
#endif
};
using step = compile<decay, pod, input<float, shape<64, 512>, split<"data", _>>>;

int main() {
  array<float> x({64, 512});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
