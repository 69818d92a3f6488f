// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the layout or the groups of a convolution do not fit
// expect: feature_group_count is 4, and dim 3
// expect: of operand 0, its features, is 6;
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto layer = [](auto x, auto w) {
#ifdef FIXED
  return convolution(x, w, "NHWC,HWIO->NHWC", {.feature_group_count = 2});
#else
  return convolution(x, w, "NHWC,HWIO->NHWC", {.feature_group_count = 4});
#endif
};
using step = compile<layer, mesh<axis<"data", 2>>, input<float, shape<4, 8, 8, 6>, split<"data", _, _, _>>,
                     input<float, shape<3, 3, 3, 8>>>;

int main() { return step::traffic.bytes > 0; }  // <- here
