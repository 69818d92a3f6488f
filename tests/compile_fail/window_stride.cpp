// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a window is no larger than the padded dim, and its size, stride and dilations are at least 1
// expect: has a stride of 0 along dim 1
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto pooled = [](auto x) {
#ifdef FIXED
  return sum_pool(x, {1, 2}, {1, 1});
#else
  return sum_pool(x, {1, 2}, {1, 0});
#endif
};
using step = compile<pooled, four, in<float, dims<8, 5>, split<"x", _>>>;

int main() {
  array<float> x({8, 5});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
