// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the program has other collectives than the list
// expect: the program has
// expect: collectives{all_reduce<
// expect: number 1
// expect: same_collectives.cpp:15
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return einsum<"bf,fd->bd">(h, w2);
};
using step = compile<mlp, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 2048>, split<_, "model">>,
                     input<float, shape<2048, 512>, split<"model", _>>>;
#ifdef FIXED
static_assert(same_collectives<step, collectives{all_reduce<"model">}>);
#else
static_assert(same_collectives<step, collectives{all_gather<"data">}>);  // <- here
#endif
