// SPDX-License-Identifier: Apache-2.0
// One training step of a Transformer block: attention and two layers after norms. `model` splits its heads and hidden
// units, `data` its batch, as in Megatron-LM. Written three times. The text of the block is the same, except `enter`,
// before a split value, and `sum`, after it. In the automatic mode both do nothing. The block is the first one: x has
// no gradient, so `enter` before the norm sends nothing, and the gradient of the norm's scale is summed over model. The
// planner finds this by itself.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <tuple>

#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/modes/tensor.hpp>

#include "block.hpp"

using namespace gspmd;

namespace {

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

constexpr auto norm = [](auto x, auto scale) {
  return einsum<"bsd,d->bsd">(einsum<"bsd,bs->bsd">(x, rsqrt(mean(x * x, {2}) + 1e-5)), scale);
};
constexpr auto block = [](auto enter, auto sum, auto x, auto scale1, auto query, auto key, auto values, auto out, auto scale2,
                          auto up, auto down) {
  auto n = norm(enter(x), scale1);
  auto q = einsum<"bsd,dhk->bshk">(n, query), k = einsum<"bsd,dhk->bshk">(n, key), v = einsum<"bsd,dhk->bshk">(n, values);
  auto p = softmax(0.5 * einsum<"bqhk,bthk->bhqt">(q, k), 3);
  auto a = x + sum(einsum<"bqhk,hkd->bqd">(einsum<"bhqt,bthk->bqhk">(p, v), out));
  auto h = relu(einsum<"bsd,df->bsf">(enter(norm(a, scale2)), up));
  return a + sum(einsum<"bsf,fd->bsd">(h, down));
};
/// Returns the block's weights after a step of gradient descent on the sum of squares of its result.
constexpr auto step = [](auto enter, auto sum, auto loss_of, auto of_all, auto of_all_data, auto x, auto scale1, auto... w) {
  auto y = block(enter, sum, x, scale1, w...);
  auto slopes = grad(loss_of(einsum<"bsd->">(y * y)), std::tuple{scale1, w...});
  return std::apply(
      [&](auto g1, auto... g) {
        return std::tuple{scale1 - 0.01 * of_all(g1), w - 0.01 * of_all_data(g)...};
      },
      slopes);
};
constexpr auto as_it_is = [](auto v) { return v; };

constexpr auto automatic = [](auto... in) { return step(as_it_is, as_it_is, as_it_is, as_it_is, as_it_is, in...); };
constexpr auto explicitly = [](auto... in) {
  return step([](auto v) { return reshard<replica<"model">>(v); },    // its gradient is summed over model
              [](auto v) { return reshard<invariant<"model">>(v); },  // all_reduce over model
              as_it_is,                                               // a sum over data: partial
              [](auto v) { return reshard<replica<"data,model">>(v); }, [](auto v) { return reshard<replica<"data">>(v); },
              in...);
};
constexpr auto by_device = [](auto... in) {
  return step([](auto v) { return local::to_replica<"model">(v); }, [](auto v) { return local::all_reduce<"model">(v); },
              [](auto v) { return local::to_partial<"data">(v); },
              [](auto v) { return local::all_reduce<"data,model", state::replica>(v); },
              [](auto v) { return local::all_reduce<"data", state::replica>(v); }, in...);
};

// x [4,8,16], 4 heads of 4, 32 hidden units.
using x_in = input<float, shape<4, 8, 16>, split<"data", _, _>>;
using scale_in = input<float, shape<16>>;
using heads_in = input<float, shape<16, 4, 4>, split<_, "model", _>>;
using out_in = input<float, shape<4, 4, 16>, split<"model", _, _>>;
using up_in = input<float, shape<16, 32>, split<_, "model">>;
using down_in = input<float, shape<32, 16>, split<"model", _>>;
using automatic_step = compile<automatic, pod, x_in, scale_in, heads_in, heads_in, heads_in, out_in, scale_in, up_in, down_in>;

using activations = tensor<float, shape<4, 8, 16>, place<pod, split<"data", _, _>>>;
using scale_of_x = tensor<float, shape<16>, place<pod, replica<"data,model">>>;
using scale = tensor<float, shape<16>, place<pod, replica<"data">>>;
using of_heads = tensor<float, shape<16, 4, 4>, place<pod, split<_, "model", _>, replica<"data">>>;
using to_width = tensor<float, shape<4, 4, 16>, place<pod, split<"model", _, _>, replica<"data">>>;
using up_weights = tensor<float, shape<16, 32>, place<pod, split<_, "model">, replica<"data">>>;
using down_weights = tensor<float, shape<32, 16>, place<pod, split<"model", _>, replica<"data">>>;
using explicit_step =
    compile<explicitly, pod, activations, scale_of_x, of_heads, of_heads, of_heads, to_width, scale, up_weights, down_weights>;

using held_scale_of_x = replica<"data,model">;
using held_scale = replica<"data">;
using held_heads = held<split<_, "model", _>, replica<"data">>;
using held_out = held<split<"model", _, _>, replica<"data">>;
using held_up = held<split<_, "model">, replica<"data">>;
using held_down = held<split<"model", _>, replica<"data">>;
constexpr auto manually = [](auto... in) {
  using weights = gives<held_scale_of_x, held_heads, held_heads, held_heads, held_out, held_scale, held_up, held_down>;
  return manual<"data", "model">(
      by_device,
      takes<split<"data", _, _>, held_scale_of_x, held_heads, held_heads, held_heads, held_out, held_scale, held_up, held_down>{},
      weights{})(in...);
};
using manual_step = compile<manually, pod, x_in, scale_in, heads_in, heads_in, heads_in, out_in, scale_in, up_in, down_in>;

// Manual along data only. The region contains no communication along model; the planner finds it.
constexpr auto by_rows = [](auto... in) {
  constexpr auto of_all = [](auto v) { return local::all_reduce<"data", state::replica>(v); };
  return step(
      as_it_is, as_it_is, [](auto v) { return local::to_partial<"data">(v); }, of_all, of_all, in...);
};
constexpr auto partly_manually = [](auto... in) {
  using all = replica<"data">;
  return manual<"data">(by_rows, takes<split<"data", _, _>, all, all, all, all, all, all, all, all>{},
                        gives<all, all, all, all, all, all, all, all>{})(in...);
};
using partly_manual_step =
    compile<partly_manually, pod, x_in, scale_in, heads_in, heads_in, heads_in, out_in, scale_in, up_in, down_in>;

// Three sums of [2,8,16] over model: of both halves, and of the gradient at the start of the second half. The gradients
// of seven weights over data, and the gradient of the first scale over both: 3/4 of the gradient, twice.
static_assert(explicit_step::traffic.over("model").in(collective_kind::all_reduce).bytes == 3 * 2 * 8 * 16 * 4 + 16 * 4 * 3 / 2);
static_assert(explicit_step::traffic.bytes == 3 * 1024 + 96 + (4 * 16 * 2 * 4 + 16 + 2 * 16 * 16) * 4);
static_assert(manual_step::traffic.bytes == explicit_step::traffic.bytes);
static_assert(automatic_step::traffic.bytes == explicit_step::traffic.bytes);
static_assert(partly_manual_step::traffic.bytes == explicit_step::traffic.bytes);

array<float> filled(std::initializer_list<std::int64_t> shape, int seed, float size) {
  array<float> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = size * static_cast<float>((i * 7 + seed * 5) % 13 - 6) / 6.0F;
  return a;
}

}  // namespace

bool run_block() {
  const auto x = filled({4, 8, 16}, 1, 1.0F), q = filled({16, 4, 4}, 2, 0.3F), k = filled({16, 4, 4}, 3, 0.3F),
             v = filled({16, 4, 4}, 4, 0.3F), o = filled({4, 4, 16}, 5, 0.3F), up = filled({16, 32}, 6, 0.3F),
             down = filled({32, 16}, 7, 0.2F);
  auto one = filled({16}, 0, 0.1F);
  for (std::int64_t i = 0; i < 16; ++i) one[i] += 1.0F;
  const auto stepped = [&](auto compiled) { return run<decltype(compiled)>(threads{}, x, one, q, k, v, o, one, up, down); };
  const auto by_planner = stepped(automatic_step{}), by_types = stepped(explicit_step{}), by_hand = stepped(manual_step{}),
             by_both = stepped(partly_manual_step{});
  bool is_right = true;
  const auto compare = [&](const auto& other) {
    const auto compare_two = [&](const array<float>& a, const array<float>& b) {
      for (std::int64_t i = 0; i < a.size(); ++i) is_right = is_right && std::fabs(a[i] - b[i]) <= 1e-5F;
    };
    std::apply([&](const auto&... a) { std::apply([&](const auto&... b) { (compare_two(a, b), ...); }, other); }, by_planner);
  };
  compare(by_types);
  compare(by_hand);
  compare(by_both);
  std::printf("a Transformer block: one device sends %lld bytes as planned, %lld as types state, %lld hand-written\n",
              static_cast<long long>(automatic_step::traffic.bytes), static_cast<long long>(explicit_step::traffic.bytes),
              static_cast<long long>(manual_step::traffic.bytes));
  return is_right;
}
