// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: scan: the body is called as body(carried, x)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return std::get<0>(scan([](auto h, auto row) { return std::tuple{h + row, h}; }, sum(x, 0), x));
#else
  return std::get<0>(scan([](auto h) { return std::tuple{h, h}; }, sum(x, 0), x));  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
