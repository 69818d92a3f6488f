// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: this is not the shard that the step takes here
// expect: input 0 is on the mesh
// expect: data=2,model=2
// expect: data=4
// expect: the mesh of the step
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto product = [](auto x, auto w) { return einsum<"bd,df->bf">(x, w); };
using step = compile<product, pod, input<float, shape<64, 512>, split<"data", _>>, input<float, shape<512, 256>>>;

int main() {
  std::vector<float> x(32 * 512), w(512 * 256), y(32 * 256);
  launch(threads{}, step::device_count, [&](auto& comm) {
    step s;
#ifdef FIXED
    shard_view<float, pod, shape<64, 512>, split<"data", _>> shard(x);
#else
    shard_view<float, mesh<axis<"data", 4>>, shape<64, 512>, split<"data", _>> shard(x);
#endif
    s(comm, shard, w, y);  // <- here
  });
}
