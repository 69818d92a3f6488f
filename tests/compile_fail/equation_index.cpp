// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an einsum equation has the form `ab,bc->ac`
// expect: 7: an index of an einsum has two
// expect: letters: (2x+w-1)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto blur = [](auto x, auto w) {
#ifdef FIXED
  return einsum<"b(x+w),w->bx">(x, w);
#else
  return einsum<"b(x+w+v),wv->bx">(x, w);  // <- here
#endif
};
using step = compile<blur, mesh<axis<"data", 2>>, input<float, shape<4, 8>, split<"data", _>>, input<float, shape<3>>>;

int main() { return step::traffic.bytes > 0; }
