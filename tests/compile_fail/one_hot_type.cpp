// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: one_hot: name the element type: one_hot<float>(labels, n)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto program = [](auto x) {
#ifdef FIXED
  return x * one_hot<float>(cast<std::int32_t>(sum(x, 1)), 32);
#else
  return x * one_hot(cast<std::int32_t>(sum(x, 1)), 32);  // <- here
#endif
};
using step = compile<program, pod, input<float, shape<64, 32>, split<"data", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
