// SPDX-License-Identifier: Apache-2.0
// Data parallelism by types and model parallelism by the planner. The program writes the communication along data; the
// planner finds it along model.
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/explicit_axes.hpp>

using namespace gspmd;

namespace {

using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
using tokens = tensor<float, shape<8, 16>, place<pod, split<"data", _>>>;
using columns = tensor<float, shape<16, 32>, place<pod, replica<"data">, split<_, "model">>>;
using weights = tensor<float, shape<32, 16>, place<pod, replica<"data">>>;  // no sharding is specified along model

constexpr auto mlp = [](auto x, auto w1, auto w2) { return einsum<"bf,fd->bd">(tanh(einsum<"bd,df->bf">(x, w1)), w2); };
constexpr auto train = [](auto x, auto w1, auto w2) {
  const auto y = mlp(x, w1, w2);
  const auto g = grad(einsum<"bd,bd->">(y, y), std::tuple{w1, w2});
  const auto summed = [](auto term) { return reshard<replica<"data">>(term); };
  return std::tuple{w1 - 0.1 * summed(std::get<0>(g)), w2 - 0.1 * summed(std::get<1>(g))};
};
using step = compile<train, explicit_axes<pod, "data">, tokens, columns, weights>;
static_assert(step::collectives == collectives{all_reduce<"model">, all_reduce<"data">, all_reduce<"data">});
static_assert(step::traffic.over("model").bytes == 2 * 3 * 4 * 16 * 4 / 4);  // y, [4,16]
static_assert(step::traffic.over("data").bytes == 2 * 16 * 8 * 4);           // two gradients, [16,8] and [8,16]

// Types name explicit axes only.
using one = mesh<axis<"data", 2>>;
static_assert(std::is_same_v<typed_result<mlp, explicit_axes<pod, "data">, tokens, columns, weights>,
                             tensor<float, shape<8, 16>, place<explicit_axes<pod, "data">, split<"data", _>>>>);

// If all axes are explicit, the program equals the explicit program step for step.
constexpr auto by_types = [](auto x, auto w1, auto w2) { return reshard<replica<"model">>(mlp(x, w1, w2)); };
using typed_tokens = tensor<float, shape<8, 16>, place<pod, split<"data", _>, replica<"model">>>;
using typed_columns = tensor<float, shape<16, 32>, place<pod, split<_, "model">, replica<"data">>>;
using typed_rows = tensor<float, shape<32, 16>, place<pod, split<"model", _>, replica<"data">>>;
using all = compile<by_types, explicit_axes<pod, "data", "model">, typed_tokens, typed_columns, typed_rows>;
using written = compile<by_types, pod, typed_tokens, typed_columns, typed_rows>;
static_assert(all::collectives == written::collectives && all::traffic.bytes == written::traffic.bytes);

// If no axis is explicit, the program is in the automatic mode.
using free_tokens = tensor<float, shape<8, 16>, place<pod, split<"data", _>>>;
using free_columns = tensor<float, shape<16, 32>, place<pod, split<_, "model">>>;
using free_weights = tensor<float, shape<32, 16>, place<pod>>;
using none = compile<mlp, explicit_axes<pod>, free_tokens, free_columns, free_weights>;
using automatic = compile<mlp, pod, input<float, shape<8, 16>, split<"data", _>>, input<float, shape<16, 32>, split<_, "model">>,
                          input<float, shape<32, 16>>>;
static_assert(none::collectives == automatic::collectives && none::traffic.bytes == automatic::traffic.bytes);

// A reshard may state both: the explicit axes of the new type, and the automatic axes that split it.
constexpr auto transposed = [](auto x) { return reshard<split<"data", "model">>(tanh(x)); };
using both = compile<transposed, explicit_axes<pod, "data">, tokens>;
static_assert(both::traffic.bytes == 0);
// An automatic axis splits a shard that an explicit axis made.
constexpr auto doubled = [](auto x) { return x + x; };
using nested = compile<doubled, explicit_axes<pod, "data">, tensor<float, shape<8, 16>, place<pod, split<"data,model", _>>>>;
static_assert(nested::traffic.bytes == 0);

}  // namespace
