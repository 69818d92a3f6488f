// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an XLA sharding splits the dims of one value by whole axes of the mesh
// expect: input 0: XLA sharding
// expect: `{devices=[8,1]<=[8] shard_as 1}`:
// expect: shard_as ties values of a program,
// expect: leave it out
// expect: shard_alike(x, other)
#include <gspmd/gspmd.hpp>
#include <gspmd/layouts/xla_sharding.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
#ifdef FIXED
using step =
    compile<product, pod, input<float, shape<64, 512>, xla_split<"{devices=[8,1]<=[8]}">>, input<float, shape<512, 256>>>;
#else
using step = compile<product, pod, input<float, shape<64, 512>, xla_split<"{devices=[8,1]<=[8] shard_as 1}">>,
                     input<float, shape<512, 256>>>;
#endif

int main() {
  array<float> x({64, 512}), w({512, 256});
  auto y = run<step>(simulated{}, x, w);  // <- here
  return y[0] > 0;
}
