// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// Passes that a program requests without having work for them. They are refused with a sentence if the request must be
// a mistake. They have no effect if their promise holds anyway.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/groups.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>
#include <gspmd/plan/overlap.hpp>
#include <gspmd/report/memory.hpp>
#include <gspmd/staggered.hpp>
#include <gspmd/transform/recompute.hpp>
#include <gspmd/transform/reproducible.hpp>
#include <gspmd/transform/update.hpp>
#include <gspmd/transform/weight_update.hpp>

#include "support/equal_plans.hpp"
#include "support/error_of.hpp"

namespace {

using namespace gspmd;

const dynamic::mesh pair_of_devices({{"data", 2}});

/// The sentence that a program is refused with.
template <class Build>
std::string sentence_of(Build build) {
  return caught::error_of([&] {
    dynamic::builder b(pair_of_devices);
    build(b);
    static_cast<void>(b.compile());
  });
}
/// A function of a tensor of 64 elements in two parts.
template <class F>
dynamic::program planned(F f, const dynamic::mesh& m = pair_of_devices) {
  return dynamic::compile(f, m, dynamic::input<float>({64}, {"data"}));
}
bool are_equal(const dynamic::program& a, const dynamic::program& b) { return reference::difference(a.view(), b.view()).empty(); }

}  // namespace

TEST_CASE("fields that are not staggered are refused") {
  const auto staggered_of = [](std::vector<std::int64_t> extents, auto f) {
    return sentence_of([&](auto& b) {
      std::vector<value> fields;
      for (const auto e : extents) fields.push_back(b.input(dynamic::input<float>({e})));
      b.output(staggered(f, fields[0], fields[1]));
    });
  };
  const char* const sentence =
      "staggered: no slice, padding or concatenation here is 1 to 8 elements longer or shorter than its operand, so no field is "
      "staggered; call the function itself";
  const auto inner = [](value u, value h) { return h + slice(u, {1}, {1 + h.shape()[0]}); };
  CHECK(caught::contains(staggered_of({64, 64}, [](value u, value h) { return u + h; }), sentence));
  CHECK(caught::contains(staggered_of({64, 64}, [](value u, value h) { return u + shift(h, 1, along(0)); }), sentence));
  CHECK(caught::contains(staggered_of({64, 40}, inner), sentence));
  CHECK(staggered_of({64, 60}, inner) == "no error");
  // Staggered, but of so few elements that aligning them gains nothing: a program of any size is one.
  CHECK(staggered_of({3, 1}, inner) == "no error");
  // Staggered, whatever reads the slices.
  CHECK(staggered_of({33, 32}, [](value u, value h) {
          return map([](float x, float a, float b) { return x + a - b; }, h, slice(u, {1}, {33}), slice(u, {0}, {32}));
        }) == "no error");
  CHECK(staggered_of({33, 32}, [](value u, value h) {
          return h + reshard(slice(u, {1}, {33}), split<"data">{}) - reshard(slice(u, {0}, {32}), split<"data">{});
        }) == "no error");
  CHECK(staggered_of({33, 32}, [](value u, value h) { return einsum<"i,i->">(h, slice(u, {1}, {33})); }) == "no error");
  CHECK(staggered_of({32, 33}, [](value u, value h) {
          return einsum<"i,i->">(h, concatenate({u, slice(u, {0}, {1})}, 0));
        }) == "no error");
}

TEST_CASE("what promises something that holds anyway changes nothing") {
  const auto squares = [](value x) { return x * x + 1.0; };
  const auto slope = [](auto f) { return [f](value x) { return grad(sum(tanh(f(tanh(f(x))))), x); }; };
  // No sum of floats: bits depend on no plan.
  CHECK(are_equal(planned(reproducible(squares)), planned(squares)));
  const auto whole = [](value x) { return sum(cast<std::int32_t>(x)); };
  CHECK(are_equal(planned(reproducible(whole)), planned(whole)));
  CHECK(!are_equal(planned(reproducible([](value x) { return sum(x); })), planned([](value x) { return sum(x); })));
  // No gradient: no stored value could be recomputed.
  CHECK(are_equal(planned(recompute(squares)), planned(squares)));
  CHECK(!are_equal(planned(slope(recompute(squares))), planned(slope(squares))));
  // Nothing is sent that could be hidden.
  CHECK(are_equal(planned(squares, pair_of_devices.with({.overlap = true})), planned(squares)));
  // A limit that is kept.
  dynamic::builder b(pair_of_devices.with({.memory = 1 << 20}));
  b.output(squares(b.input(dynamic::input<float>({64}, {"data"}))));
  CHECK(explain_memory(dynamic::inspection(b)) == "a device may hold 1048576 bytes; it holds 256, as without a limit\n");
}

namespace compiled_for_nothing {

constexpr auto squares = [](auto x) { return x * x + 1.0; };
using pod = mesh<axis<"data", 2>>;
template <options Options = options{}>
using step_with = compile<squares, pod, with<Options>, input<float, shape<64>, split<"data">>>;
static_assert(step_with<options{.overlap = true}>::peak_bytes_per_device == step_with<>::peak_bytes_per_device);
static_assert(step_with<options{.overlap = true}>::traffic.bytes == 0 &&
              step_with<options{.overlap = true}>::view.steps.size() == 1);
static_assert(step_with<options{.memory = 256}>::peak_bytes_per_device == 256 &&
              step_with<options{.memory = 256}>::traffic.bytes == 0);

}  // namespace compiled_for_nothing

TEST_CASE("updates by parts along one device are those of the step, and along no axis none") {
  const auto build = [](dynamic::builder& b, auto ask) {
    const value w = b.input(dynamic::input<float>({6}, {""})), x = b.input(dynamic::input<float>({8, 6}, {"data", ""}));
    b.output(update(w, w - grad(sum(tanh(x * w)), w)));
    ask();
  };
  const auto alone = [&](bool is_asked) {
    dynamic::builder b(pair_of_devices.with_one_device());
    build(b, [&] {
      if (is_asked) shard_weight_update(b, {"data"});
    });
    return b.compile();
  };
  CHECK(are_equal(alone(true), alone(false)));
  CHECK(caught::contains(sentence_of([&](auto& b) { build(b, [&] { shard_weight_update(b, std::vector<std::string>()); }); }),
                         "shard_weight_update: name the axes over which the same is updated, \"data\" say"));
}

TEST_CASE("every optimizer refuses parameters that are no floats") {
  const auto refuses = [](const auto& opt, const char* name) {
    const auto words = [&](auto element) {
      return sentence_of([&](auto& b) {
        const value w = b.input(dynamic::input<decltype(element)>({4}));
        dynamic::outputs(b, opt.update(w, w, optimizer::state_inputs(b, opt, w)));
      });
    };
    INFO(name);
    const std::string begin = std::string("gspmd: ") + name + " at nothing_to_do.cpp:";
    const auto integers = words(std::int32_t{});
    CHECK(caught::contains(integers, begin.c_str()));
    CHECK(caught::contains(
        integers, "tensor 0 is s32[4], and an optimizer moves floats; keep it out of the parameters, or cast<float>(x)"));
    CHECK(caught::contains(words(bool{}), "tensor 0 is pred[4], and an optimizer moves floats"));
    CHECK(words(float{}) == "no error");
  };
  refuses(optimizer::sgd{}, "sgd");
  refuses(optimizer::momentum{}, "momentum");
  refuses(optimizer::adam{}, "adam");
  refuses(optimizer::adamw{}, "adamw");
  refuses(optimizer::lars{}, "lars");
  refuses(optimizer::lamb{}, "lamb");
  refuses(optimizer::adafactor{}, "adafactor");
}

TEST_CASE("an input has one next value") {
  const auto words = [](auto second) {
    return sentence_of([&](auto& b) {
      const value w = b.input(dynamic::input<float>({4})), v = b.input(dynamic::input<float>({4}));
      const value next = update(w, w * 2.0);
      b.output(next);
      b.output(second(w, v, next));
    });
  };
  CHECK(caught::contains(words([](value w, value, value) { return update(w, w * 3.0); }),
                         "update: input 0 has two next values, and the next step gets one; mark the one that it gets"));
  CHECK(words([](value, value v, value) { return update(v, v * 3.0); }) == "no error");
  CHECK(words([](value w, value, value next) { return update(w, next); }) == "no error");  // `carried` about an optimizer
}

TEST_CASE("next values that an optimizer marks and the program computes on with are no outputs") {
  const auto loss = [](value w, value x) { return mean(tanh(einsum<"bd,d->b">(x, w))); };
  const optimizer::sgd sgd{.rate = 0.5}, fast{.rate = 2.0};
  const auto moved = [&](const optimizer::sgd& by, value w, value g) { return by.update(w, g, by.init(w)).params; };
  array<double> w0({4}), x0({8, 4});
  for (std::int64_t i = 0; i < w0.size(); ++i) w0[i] = 0.2 * static_cast<double>(i) - 0.1;
  for (std::int64_t i = 0; i < x0.size(); ++i) x0[i] = 0.25 * static_cast<double>(i * 5 % 7);
  const auto check = [&](auto step, auto by_hand) {
    const auto compiled = [](auto f, std::int64_t devices) {
      return dynamic::compile(f, dynamic::mesh({{"data", devices}}), dynamic::input<double>({4}),
                              dynamic::input<double>({8, 4}, {"data", ""}));
    };
    const auto next = compiled(step, 2).run(simulated{}, w0, x0), wanted = compiled(by_hand, 1).run(serial{}, w0, x0);
    for (int i = 0; i < 4; ++i)
      CHECK(std::abs(next[0].template data<double>()[i] - wanted[0].template data<double>()[i]) < 1e-14);
  };
  const auto descended = [&](double rate, value w, value x) { return w - rate * grad(loss(w, x), w); };
  const auto meta = [&](value w, value x) {
    const value inner = moved(sgd, w, grad(loss(w, x), w));
    return moved(sgd, w, grad(loss(inner, x), w));
  };
  const auto searched = [&](value w, value x) {
    const value g = grad(loss(w, x), w), near = moved(sgd, w, g), far = moved(fast, w, g);
    return where(loss(near, x) < loss(far, x), near, far);
  };
  const auto clipped = [&](value w, value x) { return min(moved(sgd, w, grad(loss(w, x), w)), 0.2); };
  const auto meta_by_hand = [&](value w, value x) { return w - 0.5 * grad(loss(descended(0.5, w, x), x), w); };
  const auto searched_by_hand = [&](value w, value x) {
    const value near = descended(0.5, w, x), far = descended(2.0, w, x);
    return where(loss(near, x) < loss(far, x), near, far);
  };
  const auto clipped_by_hand = [&](value w, value x) { return min(descended(0.5, w, x), 0.2); };
  check(meta, meta_by_hand);
  check(searched, searched_by_hand);
  check([&](value w, value x) { return update(w, clipped(w, x)); }, clipped_by_hand);
  check(carried(meta), meta_by_hand);
  check(carried(searched), searched_by_hand);
  check(carried(clipped), clipped_by_hand);
  check(carried([&](value w, value x) {
          const value next = clipped(w, x);
          return std::tuple{update(w, next), sum(next)};
        }),
        clipped_by_hand);
  const auto words = [](auto second) {
    return sentence_of([&](auto& b) {
      const value w = b.input(dynamic::input<float>({4})), next = update(w, w * 2.0);
      b.output(update(w, next));
      b.output(second(w, next));
    });
  };
  CHECK(words([](value w, value next) { return update(w, next); }) == "no error");  // one output, twice
  CHECK(words([](value, value next) { return next; }) == "no error");
  CHECK(caught::contains(words([](value w, value) { return update(w, w * 3.0); }), "input 0 has two next values"));
}
