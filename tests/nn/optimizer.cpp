// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: dynamic
// Optimizers against numbers of another program (tests/nn/reference/reference.py), in programs that are built at run
// time.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

#include "nn/reference/numbers.hpp"
#include "support/error_of.hpp"
#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;
using caught::error_of;
using golden::collectives_of;

constexpr int steps = 20;
using sizes = std::vector<std::int64_t>;
const std::vector<sizes> shapes{{5, 3}, {7}, {2, 3, 4}};
std::size_t size_of(const sizes& s) {
  std::size_t n = 1;
  for (const auto e : s) n *= static_cast<std::size_t>(e);
  return n;
}

template <class T>
using tensors = std::vector<std::vector<T>>;

template <class T>
tensors<T> first_parameters() {
  tensors<T> all;
  for (int k = 0; k < 3; ++k) {
    std::vector<T> p(size_of(shapes[static_cast<std::size_t>(k)]));
    for (int i = 0; i < static_cast<int>(p.size()); ++i)
      p[static_cast<std::size_t>(i)] = k == 1 && i == 2 ? T(0) : static_cast<T>((7 * i + 3 * k) % 13 - 6) / T(8);
    all.push_back(std::move(p));
  }
  return all;
}
template <class T>
tensors<T> terms_of_step(int step) {
  tensors<T> all;
  for (int k = 0; k < 3; ++k) {
    std::vector<T> a(size_of(shapes[static_cast<std::size_t>(k)]));
    for (int i = 0; i < static_cast<int>(a.size()); ++i)
      a[static_cast<std::size_t>(i)] = static_cast<T>((7 * i + 13 * step + 5 * k) % 23 - 11) / T(8);
    all.push_back(std::move(a));
  }
  return all;
}

/// A group of two levels: a struct, and a vector of structs in it.
template <class T>
struct layer {
  T w;
};
template <class T>
struct model {
  T matrix;
  std::vector<layer<T>> others;
};

struct placed_on {
  const char* name;
  std::vector<dynamic::mesh::axis> axes;
  std::array<std::vector<std::string>, 3> split;
  bool is_annotated = true;
};
const placed_on places[] = {{"one device", {{"x", 1}}, {{{"", ""}, {""}, {"", "", ""}}}},
                            {"replicated on 2", {{"x", 2}}, {{{"", ""}, {""}, {"", "", ""}}}},
                            {"split unevenly in 2", {{"x", 2}}, {{{"x", ""}, {"x"}, {"", "x", ""}}}},
                            {"split unevenly in 4", {{"x", 4}}, {{{"x", ""}, {"x"}, {"", "", "x"}}}},
                            {"columns in 4, and what is left free", {{"x", 4}}, {{{"", "x"}, {""}, {"x", "", ""}}}, false},
                            {"split in 2 x 2", {{"x", 2}, {"y", 2}}, {{{"x", "y"}, {"x,y"}, {"x", "", "y"}}}}};

/// The program of a step: takes parameters, state and the terms of the gradient; returns parameters and state.
template <class T, class Optimizer>
dynamic::program built(const placed_on& on, const Optimizer& opt, double clip) {
  dynamic::builder b(dynamic::mesh(on.axes));
  const auto in = [&](std::size_t k) {
    return on.is_annotated || k == 0 ? dynamic::input<T>(shapes[k], on.split[k]) : dynamic::input<T>(shapes[k]);
  };
  const auto p = dynamic::inputs(b, model<dynamic::input_spec>{in(0), {{in(1)}, {in(2)}}});
  const auto state = optimizer::state_inputs(b, opt, p);
  const auto term = [&](value w) {
    const auto extents = w.shape();
    const value a = b.input(dynamic::input<T>({extents.begin(), extents.end()}));
    return sum(w * a) + 0.125 * sum(w * w);
  };
  value loss = term(p.matrix);
  for (const auto& other : p.others) loss = loss + term(other.w);
  auto g = grad(loss, p);
  if (clip > 0) g = optimizer::clip_by_global_norm(g, clip);
  const auto next = opt.update(p, g, state);
  dynamic::outputs(b, next);
  return b.compile();
}

template <class T, class Optimizer>
void check(std::string_view name, const Optimizer& opt, double most, double clip = 0) {
  const auto* const expected = std::find_if(std::begin(optimizer_reference::all), std::end(optimizer_reference::all),
                                            [&](const auto& r) { return r.optimizer == name; });
  REQUIRE(expected != std::end(optimizer_reference::all));
  for (const auto& on : places) {
    const auto program = built<T>(on, opt, clip);
    const auto count = program.output_count();
    for (std::size_t k = 0; k < count; ++k) {
      if (on.is_annotated) CHECK(program.output(k).sharding() == program.input(k).sharding());
    }
    auto p = first_parameters<T>();
    std::vector<std::vector<std::byte>> held;  // parameters, then state
    for (std::size_t k = 0; k < count; ++k) {
      const auto s = program.input(k);
      std::size_t bytes = k + 1 == count ? sizeof(std::int32_t) : sizeof(T);
      for (const auto e : s.global_shape()) bytes *= static_cast<std::size_t>(e);
      held.emplace_back(bytes);
      if (k < 3) std::copy_n(reinterpret_cast<const std::byte*>(p[k].data()), bytes, held[k].data());
    }
    for (int step = 0; step < steps; ++step) {
      const auto a = terms_of_step<T>(step);
      std::vector<const void*> in;
      for (const auto& h : held) in.push_back(h.data());
      for (const auto& t : a) in.push_back(t.data());
      const auto out = program.run(simulated{}, in);
      for (std::size_t k = 0; k < count; ++k) held[k].assign(out[k].bytes.begin(), out[k].bytes.end());
    }
    double worst = 0;
    std::size_t i = 0;
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t j = 0; j < p[k].size(); ++j, ++i) {
        const double wanted = expected->parameters[i];
        const auto is = static_cast<double>(reinterpret_cast<const T*>(held[k].data())[j]);
        worst = std::max(worst, std::abs(is - wanted) / std::max(1.0, std::abs(wanted)));
      }
    INFO(name << " " << on.name << " of " << sizeof(T) << " bytes: " << worst);
    CHECK(worst <= most);
    CHECK(*reinterpret_cast<const std::int32_t*>(held.back().data()) == steps);
  }
}
template <class Optimizer>
void check_both(std::string_view name, const Optimizer& opt, double clip = 0) {
  check<double>(name, opt, 1e-12, clip);
  check<float>(name, opt, 1e-6, clip);
}

}  // namespace

TEST_CASE("descent with momentum, Nesterov's too") {
  check_both("sgd", optimizer::sgd{.rate = 0.1, .weight_decay = 0.01});
  check_both("momentum", optimizer::momentum{.rate = 0.05});
  check_both("nesterov", optimizer::momentum{.rate = 0.05, .decay = 0.8, .nesterov = true, .weight_decay = 0.02});
}
TEST_CASE("Adam and AdamW") {
  check_both("adam", optimizer::adam{.rate = 0.1});
  check_both("adam_decayed", optimizer::adam{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1});
  check_both("adamw", optimizer::adamw{.rate = 0.05, .weight_decay = 0.1});
}
TEST_CASE("optimizers with norms of whole tensors") {
  check_both("lars", optimizer::lars{.rate = 2.0, .weight_decay = 0.01, .trust = 0.02});
  check_both("lamb", optimizer::lamb{.rate = 0.05});
  check_both("adafactor", optimizer::adafactor{});
}
TEST_CASE("weight decay for some of the parameters, by their rank, number or name") {
  check_both("adam_masked",
             optimizer::adam{.rate = 0.02, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1, .decays = optimizer::matrices});
  check_both("adamw_masked", optimizer::adamw{.rate = 0.05, .weight_decay = 0.1, .decays = optimizer::matrices});
  check_both("lamb_masked", optimizer::lamb{.rate = 0.05, .weight_decay = 0.1, .decays = [](const optimizer::parameter& p) {
                                              return p.number != 1;
                                            }});
  const auto moved = [](const auto& opt, const char* name) {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    const value w = b.input(dynamic::input<float>({4}, {"x"})), g = b.input(dynamic::input<float>({4}, {"x"}));
    b.name(w, name);
    b.output(opt.update(w, g, optimizer::state_inputs(b, opt, w)).params);
    const std::vector<float> one(4, 1), zero(4, 0);
    const std::int32_t count = 0;
    return b.compile().run(simulated{}, {one.data(), zero.data(), zero.data(), &count})[0].data<float>()[1];
  };
  const auto by_name = [](const optimizer::parameter& p) { return p.name != "bias"; };
  CHECK(moved(optimizer::momentum{.rate = 0.5, .weight_decay = 0.5, .decays = by_name}, "bias") == 1.0F);
  CHECK(moved(optimizer::momentum{.rate = 0.5, .weight_decay = 0.5, .decays = by_name}, "weight") == 0.75F);
  CHECK(moved(optimizer::momentum{.rate = 0.5, .weight_decay = 0.5}, "bias") == 0.75F);
  CHECK(moved(optimizer::lars{.weight_decay = 0.5, .decays = by_name}, "bias") == 1.0F);
}
TEST_CASE("schedules") {
  check_both("warmed_cosine", optimizer::adam{.rate = optimizer::warm_up(5, optimizer::cosine_decay(0.1, 12, 0.01))});
  check_both("exponential", optimizer::sgd{.rate = optimizer::exponential_decay(0.1, 10, 0.5)});
  check_both("steps", optimizer::sgd{.rate = optimizer::step_decay(0.1, 6, 0.5)});
}
TEST_CASE("gradients are clipped by the norm of all of them") { check_both("clipped", optimizer::sgd{.rate = 0.1}, 1.5); }

namespace {

/// The error of a program with a mistake.
template <class Build>
std::string mistake_of(Build build) {
  return error_of([&] {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    build(b);
    static_cast<void>(b.compile());
  });
}

}  // namespace

TEST_CASE("what is no update is refused") {
  const optimizer::adam adam{};
  const auto in = [](dynamic::builder& b, sizes s) { return b.input(dynamic::input<float>(std::move(s))); };
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const value w = b.input(dynamic::input<std::int32_t>({4}));
                           b.output(adam.update(w, w, optimizer::state_inputs(b, adam, w)).params);
                         }),
                         "tensor 0 is s32[4], and an optimizer moves floats; keep it out of the parameters, or cast<float>(x)"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const value w = in(b, {4});
                           b.output(adam.update(w, in(b, {3}), optimizer::state_inputs(b, adam, w)).params);
                         }),
                         "gradient 0 is f32[3] and its parameter f32[4]; give grad(loss, parameters)"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const std::vector<value> w{in(b, {4}), in(b, {4})};
                           const auto state = optimizer::state_inputs(b, adam, w);
                           b.output(adam.update(w, std::vector<value>{w[0]}, state).params[0]);
                         }),
                         "there are 2 parameters and 1 gradients; give grad(loss, parameters)"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const value w = in(b, {4});
                           const optimizer::adam_state<value> state{w, in(b, {5}), b.input(dynamic::input<std::int32_t>({}))};
                           b.output(adam.update(w, w, state).params);
                         }),
                         "a tensor of the state is f32[5] and that of its parameter is f32[4]; give the state that init made"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const value w = in(b, {4});
                           b.output(adam.update(w, w, optimizer::adam_state<value>{w, w, in(b, {})}).params);
                         }),
                         "the counter of updates is f32[]; give the state that init made, whose counter is s32[]"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const value w = in(b, {4});
                           b.output(adam.update(w, w, optimizer::state_inputs(b, adam, w), w).params);
                         }),
                         "the rate is f32[4]; give a float of rank 0"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) { b.output(optimizer::clip_by_global_norm(in(b, {4}), 0)); }),
                         "clip_by_global_norm at"));
  CHECK(caught::contains(mistake_of([&](dynamic::builder& b) {
                           const optimizer::sgd sgd{.rate = optimizer::cosine_decay(0.1, 0)};
                           const value w = in(b, {4});
                           b.output(sgd.update(w, w, optimizer::state_inputs(b, sgd, w)).params);
                         }),
                         "the rate changes over 0 updates; give it 1 or more"));
}

TEST_CASE("a rate that the program is given goes before the schedule") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const optimizer::sgd sgd{.rate = 0.25};
  const value w = b.input(dynamic::input<float>({4}, {"x"}));
  const auto state = optimizer::state_inputs(b, sgd, w);
  const value rate = b.input(dynamic::input<double>({}));
  b.output(sgd.update(w, w, state, rate).params);
  const std::vector<float> one(4, 1);
  const std::int32_t count = 7;
  const double half = 0.5;
  const auto y = b.compile().run(simulated{}, {one.data(), &count, &half});
  CHECK(y[0].data<float>()[3] == 0.5F);
}

TEST_CASE("moments that are split keep their place, and the weights theirs") {
  dynamic::builder b(dynamic::mesh({{"data", 4}}));
  const optimizer::adam adam{};
  const value w = b.input(dynamic::input<float>({16, 6}, {"", ""}));
  const auto moment = [&] { return b.input(dynamic::input<float>({16, 6}, {"data", ""})); };
  const optimizer::adam_state<value> state{moment(), moment(), b.input(dynamic::input<std::int32_t>({}))};
  const value x = b.input(dynamic::input<float>({32, 16}, {"data", ""}));
  const value h = einsum<"bi,io->bo">(x, w);
  const auto next = adam.update(w, grad(sum(h * h), w), state);
  b.output(next.params);
  b.output(next.state.first);
  b.output(next.state.second);
  const auto p = b.compile();
  CHECK(collectives_of(p) == "reduce_scatter data, all_gather data");
  CHECK(p.output(0).sharding() == std::vector<std::string>{"", ""});
  CHECK(p.output(1).sharding() == std::vector<std::string>{"data", ""});
  CHECK(p.output(2).sharding() == std::vector<std::string>{"data", ""});
  for (std::size_t k = 0; k < 3; ++k) CHECK(p.can_alias(k, k));
}

TEST_CASE("norms send one number for each tensor, in one message where they are taken together") {
  const auto program = [](auto use) {
    dynamic::builder b(dynamic::mesh({{"x", 4}}));
    std::vector<value> w, g;
    for (int k = 0; k < 3; ++k) w.push_back(b.input(dynamic::input<float>({8, 8}, {"x", ""})));
    for (int k = 0; k < 3; ++k) g.push_back(b.input(dynamic::input<float>({8, 8}, {"x", ""})));
    for (const value v : use(b, w, g)) b.output(v);
    return b.compile();
  };
  const auto clipped = program([](auto&, auto&, auto& g) { return optimizer::clip_by_global_norm(g, 1); });
  CHECK(collectives_of(clipped) == "all_reduce x");
  const auto by_layer = program([](auto& b, auto& w, auto& g) {
    const optimizer::lars lars{};
    return lars.update(w, g, optimizer::state_inputs(b, lars, w)).params;
  });
  CHECK(by_layer.traffic().in(collective_kind::all_reduce).collectives == 1);
  CHECK(by_layer.traffic().in(collective_kind::all_reduce).bytes <= 2 * 6 * 4);
}

TEST_CASE("tensors of zeros are left: the ratio of lengths is 1 where there is none") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const optimizer::lars lars{.rate = 0.5, .trust = 0.001};
  const value w = b.input(dynamic::input<float>({4}, {"x"})), g = b.input(dynamic::input<float>({4}, {"x"}));
  b.output(lars.update(w, g, optimizer::state_inputs(b, lars, w)).params);
  const std::vector<float> zero(4, 0), one(4, 1);
  const std::int32_t count = 0;
  const auto p = b.compile();
  CHECK(p.run(simulated{}, {zero.data(), one.data(), zero.data(), &count})[0].data<float>()[2] == -0.5F);
  CHECK(p.run(simulated{}, {zero.data(), zero.data(), zero.data(), &count})[0].data<float>()[2] == 0.0F);
}

TEST_CASE("adafactor: the number of parameters does not matter") {
  for (std::size_t n = 1; n <= 24; ++n) {  // the list of nodes reallocates at some of these numbers
    CAPTURE(n);
    dynamic::builder b(dynamic::mesh({{"data", 2}}));
    std::vector<value> w;
    for (std::size_t i = 0; i < n; ++i) w.push_back(b.input(dynamic::input<double>({3, 12, 7}, {"", "", ""})));
    const auto state = optimizer::state_inputs(b, optimizer::adafactor{}, w);
    value loss = sum(w[0]);
    for (std::size_t i = 1; i < n; ++i) loss = loss + sum(w[i]);
    static_cast<void>(optimizer::adafactor{}.update(w, grad(loss, w), state));
    CHECK(b.graph().error.view() == "");
  }
}
