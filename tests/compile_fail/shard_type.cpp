// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: this is not the shard that the step takes here
// expect: output 0 is f32 [64,256]
// expect: and the elements passed
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
    s(comm, x, w, y);
#else
    std::vector<double> z(32 * 256);
    s(comm, x, w, z);  // <- here
#endif
  });
}
