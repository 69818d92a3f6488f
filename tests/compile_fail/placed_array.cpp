// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: this is not the shard that the step takes here
// expect: input 0 is f32 [64,32], sharded
// expect: placed strided<2>; bring it to the
// expect: sharding: to_step<step,
#include <gspmd/gspmd.hpp>
#include <gspmd/layouts/placed_array.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;

// contracts a strided dim with a plain dim; DTensor once accepted this by mistake (pytorch#166598)
constexpr auto product = [](auto x, auto w) { return einsum<"db,df->bf">(x, w); };
using step = compile<product, pod, input<float, shape<64, 32>, split<"data", _>>, input<float, shape<64, 16>, split<"data", _>>>;

int main() {
  const array<float> x({64, 32}), w({64, 16});
  launch(simulated{}, step::device_count, [&](auto& comm) {
    const placed_layout strided_rows(pod::info.shape, x.shape(), step::view.value(step::view.inputs[0]).layout, strided<2>{});
    auto xs = distribute(comm, strided_rows, x);
    auto ws = distribute<step, 1>(comm, w);
    auto y = make_result<step, 0>(comm);
    step s;
#ifdef FIXED
    auto plain = to_step<step, 0>(comm, xs);
    s(comm, plain, ws, y);
#else
    s(comm, xs, ws, y);  // <- here
#endif
  });
}
