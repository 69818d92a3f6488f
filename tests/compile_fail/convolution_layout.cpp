// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the layout or the groups of a convolution do not fit
// expect: layout `NHWC,HWIO->NHC`: the result
// expect: has no spatial dim `W`
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto layer = [](auto x, auto w) {
#ifdef FIXED
  return convolution(x, w, "NHWC,HWIO->NHWC");
#else
  return convolution(x, w, "NHWC,HWIO->NHC");
#endif
};
using step = compile<layer, mesh<axis<"data", 2>>, input<float, shape<4, 8, 8, 3>, split<"data", _, _, _>>,
                     input<float, shape<3, 3, 3, 5>>>;

int main() { return step::traffic.bytes > 0; }  // <- here
