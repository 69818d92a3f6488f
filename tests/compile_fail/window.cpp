// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a window is no larger than the padded dim
// expect: reduce_window at window.cpp:
// expect: a window that takes 9 along dim 0
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto pooled = [](auto x) {
#ifdef FIXED
  return max_pool(x, {3, 1}, {1, 1});
#else
  return max_pool(x, {9, 1}, {1, 1});
#endif
};
using step = compile<pooled, four, input<float, shape<8, 5>, split<"x", _>>>;

int main() {
  array<float> x({8, 5});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
