// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a window is no larger than the padded dim
// expect: window `w` of `(x+2w)` has 5
// expect: elements and spans 9, dim 1 of
// expect: operand 0 is 8 of [4,8]: no place
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto blur = [](auto x, auto w) {
#ifdef FIXED
  return einsum<"b(x+w),w->bx">(x, w);
#else
  return einsum<"b(x+2w),w->bx">(x, w);
#endif
};
using step = compile<blur, mesh<axis<"data", 2>>, input<float, shape<4, 8>, split<"data", _>>, input<float, shape<5>>>;

int main() { return step::traffic.bytes > 0; }  // <- here
