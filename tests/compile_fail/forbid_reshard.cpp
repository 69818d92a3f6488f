// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: forbid_reshard forbids this communication
// expect: einsum at forbid_reshard.cpp:
// expect: [_, data]
// expect: the operator needs [data, model]
// expect: this takes all_to_all
// expect: reshard one
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) { return forbid_reshard(einsum<"bd,df->bf">(x, w)); };
#ifdef FIXED
using step =
    compile<product, pod, input<float, shape<64, 512>, split<_, "model">>, input<float, shape<512, 256>, split<"model", _>>>;
#else
using step =
    compile<product, pod, input<float, shape<64, 512>, split<_, "data">>, input<float, shape<512, 256>, split<"model", _>>>;
#endif

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
