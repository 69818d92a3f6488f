// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// State that is passed from program to program: floats next to narrow parameters, and three programs in a training
// loop.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/nn/optimizer/master_weights.hpp>
#include <gspmd/run/collect_on.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/transform/weight_update.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::refusal;

constexpr std::int64_t examples = 8, rows = 7, columns = 5;
constexpr optimizer::adamw plain{.rate = 0.03, .weight_decay = 0.1};
constexpr optimizer::with_master_weights<optimizer::adamw> mixed{plain};

/// A step whose gradients are sums of quarters, which bf16 represents exactly for any weights.
template <class T, class Optimizer>
dynamic::program step_of(const dynamic::mesh& m, const Optimizer& opt, bool by_parts) {
  dynamic::builder b(m);
  const value w = b.input(dynamic::input<T>({rows, columns}));
  const auto state = optimizer::state_inputs(b, opt, w);
  const value x = b.input(dynamic::input<T>({examples, rows}, {"data", ""}));
  const value loss = sum(einsum<"bi,io->bo">(x, w));
  dynamic::outputs(b, opt.update(w, grad(loss, w), state));
  b.output(loss);
  if (by_parts) shard_weight_update(b, {"data"});
  return b.compile();
}
template <class T>
array<T> batch_of(int step) {
  array<T> x({examples, rows});
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(static_cast<float>((3 * i + 5 * step) % 5 - 2) / 4);
  return x;
}
array<float> first_weights() {
  array<float> w({rows, columns});
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 9 - 4) / 8;
  return w;
}
array<float> zeros() { return array<float>({rows, columns}); }
template <class T>
bool are_equal(const array<T>& a, const array<T>& b) {
  return a.size() > 0 && a.shape() == b.shape() &&
         std::equal(a.begin(), a.end(), b.begin(), [](T x, T y) { return static_cast<float>(x) == static_cast<float>(y); });
}

template <class T, class State, class Backend>
auto trained(const Backend& backend, const dynamic::program& p, const State& first, int steps) {
  array<T> w({rows, columns});
  const auto begin = first_weights();
  for (std::int64_t i = 0; i < w.size(); ++i) w[i] = static_cast<T>(begin[i]);
  std::pair result(w, first);
  launch(backend, static_cast<int>(p.mesh_info().shape.device_count()), [&](auto& comm) {
    auto here = distribute(comm, p, 0, std::pair(w, first));
    auto loss = make_result<T>(comm, p, p.output_count() - 1);
    dynamic::session s(p);
    auto next = make_result(comm, p, 0, here);
    for (int n = 0; n < steps; ++n) {
      s(comm, here, distribute(comm, p, p.input_count() - 1, batch_of<T>(n)), next, loss);
      std::swap(here, next);
    }
    auto whole = collect_on(comm, 0, here);
    if (comm.device(0) == 0) result = std::move(whole);
  });
  return result;
}

}  // namespace

TEST_CASE("floats beside narrow parameters are those of an optimizer of floats, and the parameters what they round to") {
  using moments = optimizer::adam_state<array<float>, array<std::int32_t>>;
  const moments none{zeros(), zeros(), array<std::int32_t>({})};
  const dynamic::mesh one({{"data", 1}}), four({{"data", 4}});
  const auto wide = trained<float>(simulated{}, step_of<float>(one, plain, false), none, 20);
  const optimizer::master_state<array<float>, moments> first{first_weights(), none};
  const auto check = [&](const auto& backend, const dynamic::mesh& m, bool by_parts) {
    const auto [w, state] = trained<bf16>(backend, step_of<bf16>(m, mixed, by_parts), first, 20);
    CHECK(are_equal(state.master, wide.first));
    CHECK(are_equal(state.state.second, wide.second.second));
    CHECK(state.state.step[0] == 20);
    bool are_rounded = true, is_lost = false;
    for (std::int64_t i = 0; i < w.size(); ++i) {
      are_rounded = are_rounded && static_cast<float>(w[i]) == static_cast<float>(static_cast<bf16>(state.master[i]));
      is_lost = is_lost || static_cast<float>(w[i]) != state.master[i];
    }
    CHECK(are_rounded);
    CHECK(is_lost);
  };
  check(simulated{}, one, false);
  check(simulated{}, four, false);
  check(simulated{}, four, true);
  check(threads{}, four, true);
}

TEST_CASE("updates by parts of narrow parameters gather them narrow; floats and moments stay in parts") {
  const dynamic::mesh four({{"data", 4}});
  const auto narrow = step_of<bf16>(four, mixed, true);
  const auto wide = step_of<float>(four, plain, true);
  const std::int64_t part = 3 * 2 * columns;  // of 7 rows in 4 parts, sent to 3 other devices
  CHECK(narrow.traffic().in(collective_kind::all_gather).bytes <= 2 * part);
  CHECK(narrow.traffic().in(collective_kind::reduce_scatter).bytes <= 2 * part);
  CHECK(2 * narrow.traffic().bytes == wide.traffic().bytes);
  CHECK(narrow.output(0).sharding() == std::vector<std::string>{"", ""});
  for (std::size_t k = 1; k < 4; ++k) {
    CHECK(narrow.output(k).type() == dtype::f32);
    CHECK(narrow.input(k).local_shape() == std::vector<std::int64_t>{2, columns});
    CHECK(narrow.output(k).local_shape() == std::vector<std::int64_t>{2, columns});
    CHECK(narrow.can_alias(k, k));
  }
  // Weights that are split floats between steps, and are converted to a narrow type when they are read, are gathered in
  // the narrow type.
  dynamic::builder b(four);
  const value w = b.input(dynamic::input<float>({rows, columns}, {"data", ""}));
  const auto state = optimizer::state_inputs(b, plain, w);
  const value x = b.input(dynamic::input<bf16>({64 * examples, rows}, {"data", ""}));
  const value y = einsum<"bi,io->bo">(x, cast<bf16>(w));
  dynamic::outputs(b, plain.update(w, grad(sum(y * y), w), state));
  const auto in_loop = b.compile();
  CHECK(in_loop.traffic().in(collective_kind::all_gather).bytes <= 2 * part);
  CHECK(in_loop.traffic().in(collective_kind::reduce_scatter).bytes <= 2 * part);
  CHECK(in_loop.traffic().in(collective_kind::all_reduce).bytes == 0);
}

TEST_CASE("three programs share their state: the first one cuts it, the loop leaves it in parts, the last one gathers it") {
  const dynamic::mesh four({{"data", 4}});
  const dynamic::input_spec part = dynamic::input<float>({rows, columns}, {"data", ""}),
                            whole = dynamic::input<float>({rows, columns}, {"", ""});
  const auto batch = dynamic::input<float>({examples, rows}, {"data", ""});
  const auto loss_of = [](value w, value x) {
    const value y = tanh(einsum<"bi,io->bo">(x, w));
    return mean(y * y);
  };
  dynamic::builder of_first(four);
  {
    const value w = of_first.input(whole);
    const value cut = of_first.reshard(w, {"data", ""});
    of_first.output(cut);
    dynamic::outputs(of_first, plain.init(cut));
  }
  dynamic::builder of_loop(four);
  {
    const value w = of_loop.input(part);
    const auto state = optimizer::state_inputs(of_loop, plain, w);
    const value x = of_loop.input(batch);
    dynamic::outputs(of_loop, plain.update(w, grad(loss_of(w, x), w), state));
  }
  dynamic::builder of_last(four);
  {
    const value w = of_last.input(part);
    of_last.output(of_last.reshard(w, {"", ""}));
  }
  const auto first = of_first.compile(), loop = of_loop.compile(), last = of_last.compile();
  CHECK(first.traffic().bytes == 0);
  CHECK(loop.output(0).sharding() == std::vector<std::string>{"data", ""});
  CHECK(last.traffic().bytes == last.traffic().in(collective_kind::all_gather).bytes);
  CHECK(last.traffic().bytes <= 3 * 2 * columns * 4);

  dynamic::builder of_alone(dynamic::mesh({{"data", 1}}));
  {
    const value w = of_alone.input(whole);
    const auto state = optimizer::state_inputs(of_alone, plain, w);
    const value x = of_alone.input(batch);
    const value loss = loss_of(w, x);
    dynamic::outputs(of_alone, plain.update(w, grad(loss, w), state));
    of_alone.output(loss);
  }
  using moments = optimizer::adam_state<array<float>, array<std::int32_t>>;
  const auto expected =
      trained<float>(simulated{}, of_alone.compile(), moments{zeros(), zeros(), array<std::int32_t>({})}, 6).first;

  array<float> got;
  launch(threads{}, 4, [&](auto& comm) {
    auto w = distribute(comm, first, 0, first_weights());
    auto state = make_result(comm, first, 0, std::pair(first_weights(), moments{zeros(), zeros(), array<std::int32_t>({})}));
    dynamic::session{first}(comm, w, state);
    dynamic::session s(loop);
    for (int n = 0; n < 6; ++n) s(comm, state, distribute(comm, loop, loop.input_count() - 1, batch_of<float>(n)), state);
    auto gathered = make_result<float>(comm, last, 0);
    dynamic::session{last}(comm, state.first, gathered);
    const auto mine = gathered.shard();  // every device has the whole state
    if (comm.device(0) == 3) {
      got = zeros();
      std::copy(mine.begin(), mine.end(), got.begin());
    }
  });
  double worst = got.size() == expected.size() ? 0 : 1;
  for (std::int64_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i])));
  CHECK(worst < 1e-6);

  simulated_communicator comm(4);  // a whole value is not used as a split one
  auto w = distribute(comm, first, 0, first_weights());
  auto out = make_result<float>(comm, last, 0);
  CHECK_EQ(refusal([&] { dynamic::session{last}(comm, w, out); }),
           "step: input 0 is f32[7,5] with the sharding [data, _], and the sharded_array has the sharding [_, _]; give both the "
           "same annotation, or convert it with to_step");
}

namespace {

template <class T>
struct dense {
  T weight, bias;
};
constexpr optimizer::with_master_weights<optimizer::momentum> halving{
    {.rate = 0.5, .weight_decay = 0.5, .decays = [](const optimizer::parameter& p) { return p.name != "bias"; }}};
using half_in = input<bf16, shape<4>>;
using dense_in = record<dense, half_in, half_in>;
constexpr auto halve = [](auto w, auto state, auto by) { return halving.update(w, by, state).params; };

}  // namespace

TEST_CASE("a mask of weight decay by name is asked about narrow parameters, not about the floats that stand for them") {
  const std::vector<bf16> one(4, bf16(1.0F)), zero(4, bf16(0.0F));
  const std::vector<float> wide(4, 1.0F), no(4, 0.0F);
  const std::int32_t count = 0;
  const auto check = [](float weight, float bias) {
    CHECK(weight == 0.75F);
    CHECK(bias == 1.0F);
  };
  const auto check_built = [&](bool are_members) {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    const auto in = dynamic::input<bf16>({4}, {"x"});
    dense<value> w{};
    if (are_members) {
      w = dynamic::inputs(b, dense<dynamic::input_spec>{in, in});
    } else {
      w.weight = b.input(in);
      w.bias = b.input(in);
      b.name(w.weight, "weight");
      b.name(w.bias, "bias");
    }
    const auto state = optimizer::state_inputs(b, halving, w);
    const dense<value> by{b.input(in), b.input(in)};
    dynamic::outputs(b, halving.update(w, by, state).params);
    const auto r = b.compile().run(
        simulated{}, {one.data(), one.data(), wide.data(), wide.data(), no.data(), no.data(), &count, zero.data(), zero.data()});
    check(static_cast<float>(r[0].data<bf16>()[3]), static_cast<float>(r[1].data<bf16>()[3]));
  };
  check_built(false);
  check_built(true);
  using step = compile<halve, mesh<axis<"x", 2>>, dense_in, optimizer::state_of<decltype(halving), dense_in>, dense_in>;
  const auto filled = [](auto number) {
    array<decltype(number)> a({4});
    a.fill(number);
    return a;
  };
  const auto of = [&](auto number) { return dense<array<decltype(number)>>{filled(number), filled(number)}; };
  using wide_pair = dense<array<float>>;
  const optimizer::master_state<wide_pair, optimizer::momentum_state<wide_pair, array<std::int32_t>>> state{
      of(1.0F), {of(0.0F), array<std::int32_t>({})}};
  const auto next = run<step>(simulated{}, of(bf16(1.0F)), state, of(bf16(0.0F)));
  check(static_cast<float>(next.weight[3]), static_cast<float>(next.bias[3]));
}

TEST_CASE("inputs that are members of structs have the members' names, as those of a record") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const auto in = dynamic::input<float>({4});
  const auto w = dynamic::inputs(b, std::vector<dense<dynamic::input_spec>>{{in, in}, {in, in}});
  const auto pair = dynamic::inputs(b, std::tuple{in, dense<dynamic::input_spec>{in, in}});
  const auto name = [](value v) { return std::string(v.node().at.name()); };
  CHECK(name(w[1].weight) == "weight");
  CHECK(name(w[1].bias) == "bias");
  CHECK(w[1].bias.node().at.number() == 3);
  CHECK(name(std::get<0>(pair)).empty());
  CHECK(name(std::get<1>(pair).bias) == "bias");
}

TEST_CASE("a state that stands for other parameters is refused") {
  dynamic::builder b(dynamic::mesh({{"data", 2}}));
  const value w = b.input(dynamic::input<bf16>({4})), other = b.input(dynamic::input<bf16>({6}));
  const auto state = optimizer::state_inputs(b, mixed, other);
  b.output(mixed.update(w, other, state).params);
  CHECK(caught::contains(refusal([&] { static_cast<void>(b.compile()); }),
                         "parameter 0 is bf16[4] and its float is f32[6]; give the state that init made of these parameters"));
}
