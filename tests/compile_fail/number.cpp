// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the element type of a tensor cannot represent a number exactly; convert the tensor
// expect: compare_lt at number.cpp:
// expect: number 4.5 is no value of s32
// expect: cast<float>(x)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

constexpr auto small = [](auto x) {
#ifdef FIXED
  return where(x < 4.0, cast<float>(x) * 0.5, 2);
#else
  return where(x < 4.5, x * 2, x);
#endif
};
using step = compile<small, pod, input<std::int32_t, shape<8>, split<"data">>>;

int main() {
  auto y = run<step>(simulated{}, array<std::int32_t>({8}));  // <- here
  return y[0] > 0;
}
