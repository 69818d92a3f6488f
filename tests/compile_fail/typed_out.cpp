// SPDX-License-Identifier: Apache-2.0
// `out` converts a partial sum and moves nothing else. It does not gather uneven parts, as a reshard would.
// expect: gspmd: a program with types has only the communication that you write
// expect: out at typed_out.cpp:
// expect: nothing else may move
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
using rows = tensor<float, shape<6, 4>, place<pod, split<"y", _>, replica<"x">>>;
using weight = tensor<float, shape<4, 4>, place<pod, split<_, _>, replica<"x,y">>>;
constexpr auto product = [](auto a, auto b) {
#ifdef FIXED
  return reshard<split<"y,x", _>>(einsum<"ab,bc->ac">(a, b));
#else
  return einsum<"ab,bc->ac">(a, b, out<split<"y,x", _>>{});
#endif
};

constexpr int count = compile<product, pod, rows, weight>::device_count;  // <- here
