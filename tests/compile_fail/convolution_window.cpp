// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a window is no larger than the padded dim
// expect: window has 3 elements along dim `W`
// expect: and spans 5, dim 2 of the operand
// expect: [4,8,2,3] is 3 with its padding of
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto layer = [](auto x, auto w) {
#ifdef FIXED
  return convolution(x, w, "NHWC,HWIO->NHWC", {.low = {0, 1}, .high = {0, 2}, .rhs_dilation = {1, 2}});
#else
  return convolution(x, w, "NHWC,HWIO->NHWC", {.low = {0, 1}, .rhs_dilation = {1, 2}});
#endif
};
using step = compile<layer, mesh<axis<"data", 2>>, input<float, shape<4, 8, 2, 3>, split<"data", _, _, _>>,
                     input<float, shape<3, 3, 3, 5>>>;

int main() { return step::traffic.bytes > 0; }  // <- here
