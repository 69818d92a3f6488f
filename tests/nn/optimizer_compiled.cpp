// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: states
// Optimizers in compiled programs, over structs in structs and arrays of structs.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

#include "nn/reference/numbers.hpp"

namespace {

using namespace gspmd;

template <class T>
struct layer {
  T w;
};
template <class T>
struct model {
  using layers = std::array<layer<T>, 2>;
  layer<T> matrix;
  layers others;
};

using square = mesh<axis<"x", 2>, axis<"y", 2>>;
using matrix = input<double, shape<5, 3>, split<"x", "y">>;
using vector_in = input<double, shape<7>, split<"x,y">>;
using cube = input<double, shape<2, 3, 4>, split<"x", _, "y">>;
using network_in = record<model, record<layer, matrix>, array_of<record<layer, vector_in>, record<layer, cube>>>;
using terms_in = record<model, record<layer, input<double, shape<5, 3>>>,
                        array_of<record<layer, input<double, shape<7>>>, record<layer, input<double, shape<2, 3, 4>>>>>;

template <class Value>
constexpr auto loss_of(const model<Value>& p, const model<Value>& a) {
  const auto term = [](value w, value t) { return sum(w * t) + 0.125 * sum(w * w); };
  return term(p.matrix.w, a.matrix.w) + term(p.others[0].w, a.others[0].w) + term(p.others[1].w, a.others[1].w);
}
constexpr optimizer::adamw adamw{
    .rate = 0.05, .weight_decay = 0.1, .decays = [](const optimizer::parameter& p) { return p.name == "w" && p.rank > 1; }};
constexpr auto train = [](auto p, auto state, auto a) { return adamw.update(p, grad(loss_of(p, a), p), state); };
constexpr auto first_state = [](auto p) { return adamw.init(p); };
using state_in = optimizer::state_of<optimizer::adamw, network_in>;
using step = compile<train, square, network_in, state_in, terms_in>;
using initial = compile<first_state, square, network_in>;

template <std::size_t... K>
constexpr bool keeps_places(std::index_sequence<K...>) {
  return ((step::output_shard<K>::layout == step::input_shard<K>::layout) && ...);
}

model<array<double>> first_parameters() {
  model<array<double>> p{{array<double>({5, 3})}, {{{array<double>({7})}, {array<double>({2, 3, 4})}}}};
  int k = 0;
  for (auto* a : {&p.matrix.w, &p.others[0].w, &p.others[1].w}) {
    for (int i = 0; i < static_cast<int>(a->size()); ++i) (*a)[i] = k == 1 && i == 2 ? 0.0 : ((7 * i + 3 * k) % 13 - 6) / 8.0;
    ++k;
  }
  return p;
}
model<array<double>> terms_of_step(int n) {
  auto a = first_parameters();
  int k = 0;
  for (auto* t : {&a.matrix.w, &a.others[0].w, &a.others[1].w}) {
    for (int i = 0; i < static_cast<int>(t->size()); ++i) (*t)[i] = ((7 * i + 13 * n + 5 * k) % 23 - 11) / 8.0;
    ++k;
  }
  return a;
}
double difference(std::string_view name, const model<array<double>>& p) {
  const auto* const expected = std::find_if(std::begin(optimizer_reference::all), std::end(optimizer_reference::all),
                                            [&](const auto& r) { return r.optimizer == name; });
  double worst = 0;
  std::size_t i = 0;
  for (const auto* a : {&p.matrix.w, &p.others[0].w, &p.others[1].w})
    for (std::int64_t j = 0; j < a->size(); ++j) worst = std::max(worst, std::abs((*a)[j] - expected->parameters.at(i++)));
  return worst;
}

}  // namespace

TEST_CASE("a network of structs in structs and arrays: whole arrays") {
  auto p = first_parameters();
  auto state = run<initial>(simulated{}, p);
  static_assert(std::is_same_v<decltype(state), optimizer::adam_state<model<array<double>>, array<std::int32_t>>>);
  for (int n = 0; n < 20; ++n) {
    auto next = run<step>(simulated{}, p, state, terms_of_step(n));
    p = next.params;
    state = next.state;
  }
  CHECK(difference("adamw_masked", p) < 1e-12);
  CHECK(state.step[0] == 20);
}

TEST_CASE("the same on shards, written over themselves: what comes out lies as what went in") {
  static_assert(keeps_places(std::make_index_sequence<10>{}));
  static_assert(step::input_count == 10 + 3 && step::output_count == 10);
  static_assert(step::can_alias<0, 0> && step::can_alias<1, 1> && step::can_alias<5, 5> && step::can_alias<9, 9>);
  launch(threads{}, 4, [](auto& comm) {
    auto p = distribute<step, 0>(comm, first_parameters());
    const auto zeros = [](const array<double>& a) { return array<double>(a.shape()); };
    auto state = distribute<step, 1>(comm, optimizer::adam_state<model<array<double>>, array<std::int32_t>>{
                                               transform_leaves(zeros, first_parameters()),
                                               transform_leaves(zeros, first_parameters()), array<std::int32_t>({})});
    step s;
    for (int n = 0; n < 20; ++n) {
      const auto a = distribute<step, 2>(comm, terms_of_step(n));
      s(comm, p, state, a, p, state);
    }
    const auto whole = collect(comm, p);
    if (!(difference("adamw_masked", whole) < 1e-12)) throw error("other numbers than the reference");
  });
}

namespace {
constexpr optimizer::adafactor adafactor{};
constexpr auto one_tensor = [](auto w, auto state, auto a) {
  return adafactor.update(w, grad(sum(w * a) + 0.125 * sum(w * w), w), state);
};
using one_step =
    compile<one_tensor, square, matrix, optimizer::state_of<optimizer::adafactor, matrix>, input<double, shape<5, 3>>>;
}  // namespace

TEST_CASE("one tensor, whose state has other shapes") {
  static_assert(one_step::input_shard<1>::global_extents == detail::extents{5});
  static_assert(one_step::input_shard<2>::global_extents == detail::extents{3});
  auto w = first_parameters().matrix.w;
  optimizer::adafactor_state<array<double>, array<std::int32_t>> state{array<double>({5}), array<double>({3}),
                                                                       array<std::int32_t>({})};
  for (int n = 0; n < 20; ++n) {
    auto [next, after] = run<one_step>(simulated{}, w, state, terms_of_step(n).matrix.w);
    w = next;
    state = after;
  }
  const auto* const expected = std::find_if(std::begin(optimizer_reference::all), std::end(optimizer_reference::all),
                                            [](const auto& r) { return r.optimizer == "adafactor"; });
  for (std::int64_t i = 0; i < w.size(); ++i)
    CHECK(std::abs(w[i] - expected->parameters.at(static_cast<std::size_t>(i))) < 1e-12);
}
