// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the program is over its budget
// expect: a device sends 2 messages over
// expect: `model`, 1 are allowed
// expect: all_reduce over `model` for einsum
// expect: budget_messages.cpp:
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
static_assert(within_budget<step, max_messages<2>, max_messages<2, over<"model">>>);
#else
static_assert(within_budget<step, max_messages<2>, max_messages<1, over<"model">>>);  // <- here
#endif
