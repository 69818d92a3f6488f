// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: states
// Updates of weights that are split over the axes that repeat them, in compiled programs: nothing but the batch is
// annotated.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/nn/optimizer/reformatted.hpp>
#include <gspmd/transform/weight_update.hpp>

namespace {

using namespace gspmd;

template <class T>
struct mlp {
  T w1, b1, w2;
};
constexpr optimizer::adam adam{.rate = 0.05};
constexpr auto train = [](auto w, auto state, value x) {
  const value y = einsum<"bi,io->bo">(tanh(einsum<"bi,io->bo">(x, w.w1) + w.b1), w.w2);
  return adam.update(w, grad(mean(y * y), w), state);
};
using four = mesh<axis<"data", 4>>;
using weights = record<mlp, input<double, shape<12, 9>>, input<double, shape<9>>, input<double, shape<9, 4>>>;
using state_in = optimizer::state_of<optimizer::adam, weights>;
using batch = input<double, shape<64, 12>, split<"data", _>>;
using step = compile<shard_weight_update<"data">(train), four, weights, state_in, batch>;
using alone = compile<train, mesh<axis<"data", 1>>, weights, state_in, batch>;

template <class Step, std::size_t... K>
constexpr bool keeps_places_of(std::index_sequence<K...>) {
  return (
      (Step::template output_shard<K>::layout == Step::template input_shard<K>::layout && Step::template can_alias<K, K>)&&...);
}
// A part of the biases is 3 of 9, and one device has none; w2 is cut along its dim 1, of 4.
constexpr std::int64_t part_bytes = 8 * (3 * 9 + 3 + 9 * 1);
static_assert(step::traffic.in(collective_kind::reduce_scatter).bytes == 3 * part_bytes);
static_assert(step::traffic.in(collective_kind::all_gather).bytes == 3 * part_bytes);
static_assert(step::traffic.bytes == 6 * part_bytes);
static_assert(keeps_places_of<step>(std::make_index_sequence<10>{}));
static_assert(step::input_shard<3>::local_extents == detail::extents{3, 9});

// Adafactor's means: over the rows of a weight of 12 x 8 that is cut to 3 x 8, and over its columns, sums of the
// devices' parts.
constexpr auto factored = [](auto w, auto state, value x) {
  const value y = tanh(einsum<"bi,io->bo">(x, w));
  return optimizer::adafactor{}.update(w, grad(mean(y * y), w), state);
};
using single = input<double, shape<12, 8>>;
using step_of_factored =
    compile<shard_weight_update<"data">(factored), four, single, optimizer::state_of<optimizer::adafactor, single>, batch>;
static_assert(step_of_factored::input_shard<1>::local_extents == detail::extents{3});
static_assert(step_of_factored::input_shard<2>::local_extents == detail::extents{2});
static_assert(step_of_factored::traffic.in(collective_kind::all_gather).bytes == 3 * 8 * (3 * 8 + 2));
static_assert(keeps_places_of<step_of_factored>(std::make_index_sequence<4>{}));

// Moments of 3 x 5 in a row of 15. A device has 4 elements of the row, and not 1 x 5.
using odd = input<double, shape<3, 5>>;
using even_adam = optimizer::reformatted<optimizer::adam, 4>;
constexpr auto reformatted = [](auto w, auto state, value x) {
  const value y = tanh(einsum<"bi,io->bo">(x, w));
  return even_adam{}.update(w, grad(mean(y * y), w), state);
};
using step_of_reformatted = compile<shard_weight_update<"data">(reformatted), four, odd, optimizer::state_of<even_adam, odd>,
                                    input<double, shape<64, 3>, split<"data", _>>>;
static_assert(step_of_reformatted::input_shard<1>::local_extents == detail::extents{4});
static_assert(step_of_reformatted::traffic.in(collective_kind::reduce_scatter).bytes == 3 * 8 * 4);
static_assert(step_of_reformatted::traffic.in(collective_kind::all_gather).bytes == 3 * 8 * 4);

// An update inside of the loss of another one: the inner one is no output, and the outer one is the next value.
constexpr auto meta = [](value w, value x) {
  const auto loss = [](value v, value y) { return mean(tanh(einsum<"bi,io->bo">(y, v))); };
  const auto moved = [](value v, value g) { return optimizer::sgd{}.update(v, g, optimizer::sgd{}.init(v)).params; };
  return moved(w, grad(loss(moved(w, grad(loss(w, x), w)), x), w));
};
using step_of_meta = compile<meta, four, odd, input<double, shape<64, 3>, split<"data", _>>>;
static_assert(step_of_meta::output_shard<0>::layout == step_of_meta::input_shard<0>::layout);

mlp<array<double>> first_weights() {
  mlp<array<double>> w{array<double>({12, 9}), array<double>({9}), array<double>({9, 4})};
  for (auto* a : {&w.w1, &w.b1, &w.w2})
    for (std::int64_t i = 0; i < a->size(); ++i) (*a)[i] = static_cast<double>(i * 7 % 11 - 5) / 16;
  return w;
}
array<double> examples(int n) {
  array<double> x({64, 12});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 5 + n * 3) % 13 - 6) / 8;
  return x;
}
optimizer::adam_state<mlp<array<double>>, array<std::int32_t>> first_state() {
  const auto zeros = [](const array<double>& a) { return array<double>(a.shape()); };
  return {transform_leaves(zeros, first_weights()), transform_leaves(zeros, first_weights()), array<std::int32_t>({})};
}

}  // namespace

TEST_CASE("updates by parts, compiled: shards written over themselves, the numbers of one device") {
  auto w = first_weights();
  auto state = first_state();
  for (int n = 0; n < 4; ++n) {
    const auto next = run<alone>(simulated{}, w, state, examples(n));
    w = next.params;
    state = next.state;
  }
  launch(threads{}, 4, [&](auto& comm) {
    auto shards = distribute<step, 0>(comm, first_weights());
    auto moments = distribute<step, 1>(comm, first_state());
    step s;
    for (int n = 0; n < 4; ++n) {
      const auto x = distribute<step, 2>(comm, examples(n));
      s(comm, shards, moments, x, shards, moments);
    }
    const auto whole = collect(comm, shards);
    for (std::int64_t i = 0; i < w.w1.size(); ++i)
      if (!(std::abs(whole.w1[i] - w.w1[i]) < 1e-12)) throw error("other weights than on one device");
    for (std::int64_t i = 0; i < w.w2.size(); ++i)
      if (!(std::abs(whole.w2[i] - w.w2[i]) < 1e-12)) throw error("other weights than on one device");
  });
  CHECK(explain_weight_updates<step>().find("input 0 (w1) f64[12,9]: updated as [data, _] and gathered, 2 states stay split") ==
        0);
}

namespace {

using square = mesh<axis<"x", 2>, axis<"y", 2>>;
constexpr auto sweep = [](value u, value f) { return std::tuple{transpose(u + f, {1, 0}), sum(u)}; };
using sweeps = compile<carried(sweep), square, input<float, shape<8, 8>>, input<float, shape<8, 8>, split<"x", "y">>>;

}  // namespace

TEST_CASE("carried, compiled: the state lies where completion puts it") {
  static_assert(sweeps::input_shard<0>::local_extents == detail::extents{4, 4});
  static_assert(sweeps::output_shard<0>::layout == sweeps::input_shard<0>::layout);
  static_assert(sweeps::traffic.in(collective_kind::collective_permute).bytes > 0);
}
