// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the program is refused
// expect: map at map_state.cpp:
// expect: captureless
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto scaled = [](auto x) {
  const int factor = 3;
#ifdef FIXED
  return map([](auto a, auto b) { return a * b; }, x, factor);
#else
  return map([factor](auto a) { return a * static_cast<decltype(a)>(factor); }, x);
#endif
};
using step = compile<scaled, mesh<axis<"data", 2>>, input<float, shape<64>, split<"data">>>;

int main() {
  array<float> x({64});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
