// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: this names an axis that the mesh does not have
// expect: `rows` is not an axis of the mesh;
// expect: its axes are data,model
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
static_assert(within_budget<step, max_messages<0, over<"data">>>);
#else
static_assert(within_budget<step, max_messages<0, over<"rows">>>);  // <- here
#endif
