// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: there is no max; write maximum(x, y), or reduce(x, monoid::maximum)
#include <algorithm>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
using std::max;

constexpr auto program = [](auto x, auto y) {
#ifdef FIXED
  return maximum(x, y);
#else
  return max(x, y);  // <- here
#endif
};
using step = compile<program, pod, in<float, dims<64, 32>, split<"data", _>>, in<float, dims<64, 32>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x, x);  // <- here
  return y[0] > 0;
}
