// SPDX-License-Identifier: Apache-2.0
// The dim of examples behaves like other dims: if an axis splits it, no data is sent for it, in all modes.
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes.hpp>
#include <gspmd/transform/vmap.hpp>

namespace {

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

// ---- automatic ----
constexpr auto mlp = [](value x, value w1, value w2) { return einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2); };
constexpr auto ensemble = [](auto x, auto w1, auto w2) { return vmap<not_mapped, 0, 0>(mlp)(x, w1, w2); };

using members = compile<ensemble, pod, input<float, shape<8, 16>>, input<float, shape<4, 16, 32>, split<"data", _, _>>,
                        input<float, shape<4, 32, 16>>>;
static_assert(members::collectives == collectives{});

/// An ensemble whose hidden layers are split too.
using wide = compile<ensemble, pod, input<float, shape<8, 16>>, input<float, shape<4, 16, 32>, split<"data", _, "model">>,
                     input<float, shape<4, 32, 16>, split<"data", "model", _>>>;
static_assert(wide::collectives == collectives{all_reduce<"model">});

// Fewer examples than devices, and numbers of examples that do not divide evenly.
template <std::int64_t N>
using few = compile<ensemble, pod, input<float, shape<8, 16>>, input<float, shape<N, 16, 32>, split<"data,model", _, _>>,
                    input<float, shape<N, 32, 16>, split<"data,model", _, _>>>;
static_assert(few<3>::collectives == collectives{});
static_assert(few<5>::collectives == collectives{});

// A training step of each member, with separate losses and gradients.
constexpr auto step = [](value x, value target, value w1, value w2) {
  const auto error = mlp(x, w1, w2) - target;
  const auto g = grad(mean(error * error), std::tuple{w1, w2});
  return std::tuple{w1 - 0.1 * std::get<0>(g), w2 - 0.1 * std::get<1>(g)};
};
constexpr auto train = [](auto... tensors) { return vmap<not_mapped, not_mapped, 0, 0>(step)(tensors...); };
using trained = compile<train, pod, input<float, shape<8, 16>>, input<float, shape<8, 16>>,
                        input<float, shape<4, 16, 32>, split<"data", _, _>>, input<float, shape<4, 32, 16>, split<"data", _, _>>>;
static_assert(trained::collectives == collectives{});

// Gradients of each example, and of all examples. The gradients of each example send nothing. The gradients of all
// examples are summed.
constexpr auto loss = [](value x, value w) { return sum(tanh(einsum<"d,df->f">(x, w))); };
constexpr auto gradient = [](value x, value w) { return grad(loss(x, w), w); };
constexpr auto of_each = [](auto x, auto w) { return vmap<0, not_mapped>(gradient)(x, w); };
constexpr auto of_all = [](auto x, auto w) { return grad(sum(vmap<0, not_mapped>(loss)(x, w)), w); };
using rows = input<float, shape<8, 16>, split<"data", _>>;
using weights = input<float, shape<16, 4>>;
static_assert(compile<of_each, pod, rows, weights>::collectives == collectives{});
static_assert(compile<of_all, pod, rows, weights>::collectives == collectives{all_reduce<"data">});

// In loops, nested, and with an annotation that names the dims of one example.
constexpr auto recurrent = [](value h, value xs) {
  return scan(
      [](value now, value x) {
        const auto next = reshard(tanh(now * 0.5 + x), split<"model">{});
        return std::tuple{next, next};
      },
      h, xs);
};
constexpr auto sequences = [](auto h, auto xs) { return vmap(recurrent)(h, xs); };
static_assert(compile<sequences, pod, input<float, shape<4, 6>, split<"data", _>>,
                      input<float, shape<4, 5, 6>, split<"data", _, "model">>>::collectives == collectives{});
constexpr auto distance = [](value x, value y) { return sum((x - y) * (x - y)); };
constexpr auto to_all = [](value x, value all) { return vmap<not_mapped, 0>(distance)(x, all); };
constexpr auto distances = [](auto x, auto y) { return vmap<0, not_mapped>(to_all)(x, y); };
static_assert(compile<distances, pod, input<float, shape<8, 3>, split<"data", _>>,
                      input<float, shape<6, 3>, split<"model", _>>>::collectives == collectives{});

// ---- explicit ----
constexpr auto layer = [](value x, value w1, value w2) {
  return reshard<split<_, "model">>(einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(x, w1)), w2));
};
constexpr auto typed = [](auto x, auto w1, auto w2) { return vmap<0, not_mapped, not_mapped>(layer)(x, w1, w2); };
using typed_x = tensor<float, shape<4, 8, 16>, place<pod, split<"data", _, _>, replica<"model">>>;
using typed_w1 = tensor<float, shape<16, 32>, place<pod, split<_, "model">, replica<"data">>>;
using typed_w2 = tensor<float, shape<32, 16>, place<pod, split<"model", _>, replica<"data">>>;
static_assert(compile<typed, pod, typed_x, typed_w1, typed_w2>::collectives == collectives{reduce_scatter<"model">});
static_assert(std::is_same_v<typed_result<typed, pod, typed_x, typed_w1, typed_w2>,
                             tensor<float, shape<4, 8, 16>, place<pod, split<"data", _, "model">>>>);

// ---- manual: a region in the function, and a vmap in a region ----
constexpr auto product = [](auto x, auto w) { return local::all_reduce<"model">(einsum<"bf,fd->bd">(x, w)); };
constexpr auto in_region = [](value x, value w) {
  return manual<"model">(product, takes<split<_, "model">, split<"model", _>>{}, gives<invariant<"model">>{})(x, w);
};
constexpr auto region_inside = [](auto x, auto w) { return vmap<0, not_mapped>(in_region)(x, w); };
static_assert(
    compile<region_inside, pod, input<float, shape<4, 8, 16>, split<"data", _, "?">>, input<float, shape<16, 8>>>::collectives ==
    collectives{all_reduce<"model">});
constexpr auto products = [](auto x, auto w) { return vmap<0, not_mapped>(product)(x, w); };
constexpr auto inside_region = [](auto x, auto w) {
  return manual<"model", "data">(products, takes<split<"data", _, "model">, held<split<"model", _>, replica<"data">>>{},
                                 gives<split<"data", _, _>>{})(x, w);
};
static_assert(compile<inside_region, pod, input<float, shape<4, 8, 16>>, input<float, shape<16, 8>>>::collectives ==
              collectives{all_reduce<"model">});

}  // namespace
