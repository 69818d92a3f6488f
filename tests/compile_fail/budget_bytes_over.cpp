// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: the program is over its budget
// expect: a device sends 65536 bytes over
// expect: `model`, 65535 are allowed; most of
// expect: it: all_reduce over `model` for
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
static_assert(within_budget<step, max_bytes<65536, over<"model">>>);
#else
static_assert(within_budget<step, max_bytes<65535, over<"model">>>);  // <- here
#endif
