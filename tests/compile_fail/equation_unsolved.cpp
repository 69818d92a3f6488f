// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an einsum equation has the form `ab,bc->ac`
// expect: column 4:
// expect: the extent of this letter
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto blur = [](auto x, auto w) {
#ifdef FIXED
  return einsum<"bx,w->bxw">(x, w);
#else
  return einsum<"b(2x+v),w->bx">(x, w);  // <- here
#endif
};
using step = compile<blur, mesh<axis<"data", 2>>, input<float, shape<4, 8>, split<"data", _>>, input<float, shape<3>>>;

int main() { return step::traffic.bytes > 0; }
