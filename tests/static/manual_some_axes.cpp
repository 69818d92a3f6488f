// SPDX-License-Identifier: Apache-2.0
// Manual data parallelism with automatic model parallelism: the region writes its communication, and the planner finds
// the shardings in it.
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;

constexpr auto step = [](auto x, auto w1, auto w2) {
  return manual<"data">(
      [](auto rows, auto up, auto down) {  // [4,16], [16,32], [32,16]: split along model, without an annotation here
        auto y = einsum<"bf,fd->bd">(tanh(einsum<"bd,df->bf">(rows, up)), down);
        auto loss = local::to_partial<"data">(einsum<"bd->">(y * y));
        auto g = grad(loss, std::tuple{up, down});
        const auto summed = [](auto term) { return local::all_reduce<"data", state::replica>(term); };
        return std::tuple{up - 0.1 * summed(std::get<0>(g)), down - 0.1 * summed(std::get<1>(g))};
      },
      takes<split<"data", _>, replica<"data">, replica<"data">>{}, gives<replica<"data">, replica<"data">>{})(x, w1, w2);
};
using compiled = compile<step, pod, input<float, shape<8, 16>, split<"data", _>>, input<float, shape<16, 32>, split<_, "model">>,
                         input<float, shape<32, 16>, split<"model", _>>>;

static_assert(compiled::collectives == collectives{all_reduce<"model">, all_reduce<"data">, all_reduce<"data">});
static_assert(compiled::traffic.over("model").bytes == 2 * 3 * 4 * 16 * 4 / 4);   // y, [4,16]
static_assert(compiled::traffic.over("data").bytes == 2 * 16 * 8 * 4);            // two gradients, [16,8] and [8,16]
static_assert(compiled::shared_input<0> == 1 && compiled::shared_input<1> == 2);  // the weights keep their layouts

}  // namespace
