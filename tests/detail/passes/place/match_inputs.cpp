// SPDX-License-Identifier: Apache-2.0
// labels: threads
// group: dynamic
// Outputs that the caller gives the memory of inputs.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/dynamic/session.hpp>
#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::error_of;

using pair = mesh<axis<"x", 2>>;
using rows = input<float, shape<7, 5>, split<"x", _>>;

/// p1, m1, v1
constexpr auto adam_of(value p, value m, value v, value g) {
  const value m1 = 0.9 * m + 0.1 * g;
  const value v1 = 0.99 * v + 0.01 * g * g;
  return std::tuple(p - 0.1 * m1 / (sqrt(v1) + 1e-3), m1, v1);
}
constexpr auto adam = [](auto p, auto m, auto v, auto g) { return adam_of(p, m, v, g); };
constexpr auto shuffled = [](auto g, auto v, auto p, auto m) {
  auto [p1, m1, v1] = adam_of(p, m, v, g);
  return std::tuple(v1, m1, p1);
};
using step_in_order = compile<adam, pair, rows, rows, rows, rows>;
using step_shuffled = compile<shuffled, pair, rows, rows, rows, rows>;

array<float> filled(float first) {
  array<float> a({7, 5});
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = first + static_cast<float>(i % 11) / 8;
  return a;
}

/// Runs `Step` with outputs of their own and then over the inputs that `over` says; throws where results differ.
template <class Step, class Comm>
void check_orders(Comm& comm, std::initializer_list<std::array<std::size_t, 3>> orders) {
  for (const auto& over : orders) {
    std::vector<sharded_array<float>> in, out;
    for (int k = 0; k < 4; ++k) in.push_back(distribute<Step, 0>(comm, filled(static_cast<float>(k + 1))));
    for (int k = 0; k < 3; ++k) out.push_back(make_result<Step, 0>(comm));
    Step step;
    for (const bool shares : {false, true}) {
      const auto result = [&](std::size_t k) -> auto& { return shares ? in[over[k]] : out[k]; };
      step(comm, in[0], in[1], in[2], in[3], result(0), result(1), result(2));
    }
    for (std::size_t k = 0; k < 3; ++k) {
      const auto x = collect(comm, out[k]), y = collect(comm, in[over[k]]);
      for (std::int64_t i = 0; i < x.size(); ++i)
        if (x[i] != y[i]) throw error("output " + std::to_string(k) + " over input " + std::to_string(over[k]) + " differs");
    }
  }
}

constexpr auto check_all_orders = [](auto& comm) {
  check_orders<step_in_order>(comm, {{0, 1, 2}, {2, 0, 1}, {3, 1, 2}});
  check_orders<step_shuffled>(comm, {{1, 3, 2}, {1, 0, 3}});
};

}  // namespace

TEST_CASE("weights and moments of Adam are written over themselves, in whatever order the caller says") {
  static_assert(step_in_order::shared_input<0> == 0 && step_in_order::shared_input<1> == 1 &&
                step_in_order::shared_input<2> == 2);
  static_assert(step_shuffled::shared_input<0> == 1 && step_shuffled::shared_input<1> == 3 &&
                step_shuffled::shared_input<2> == 2);
  static_assert(step_in_order::can_alias<0, 3> && step_in_order::can_alias<2, 0>);
  CHECK_NOTHROW(launch(simulated{}, 2, check_all_orders));
  CHECK_NOTHROW(launch(threads{}, 2, check_all_orders));
}

TEST_CASE("so are those of a program at run time") {
  for (const bool is_shuffled : {false, true}) {
    dynamic::builder b(dynamic::mesh({{"x", 2}}));
    std::vector<value> x;
    for (int k = 0; k < 4; ++k) x.push_back(b.input(dynamic::input<float>({7, 5}, {"x", ""})));
    const auto [p1, m1, v1] = is_shuffled ? adam_of(x[2], x[3], x[1], x[0]) : adam_of(x[0], x[1], x[2], x[3]);
    for (const auto& y : is_shuffled ? std::vector{v1, m1, p1} : std::vector{p1, m1, v1}) b.output(y);
    const auto program = b.compile();
    for (std::size_t k = 0; k < 3; ++k) {
      CHECK(program.shared_input(k) == (is_shuffled ? std::vector{1, 3, 2} : std::vector{0, 1, 2})[k]);
      for (std::size_t i = 0; i < 4; ++i)  // shuffled, v1 has a loop of its own, before those that read the others
        CHECK(program.can_alias(k, i) == (!is_shuffled || k > 0 || i == 1));
    }
    using orders = std::vector<std::vector<std::size_t>>;
    const auto check = [&](auto& comm) {
      const auto devices = static_cast<std::size_t>(comm.local_count());
      for (const auto& over : is_shuffled ? orders{{1, 3, 2}, {1, 0, 3}, {1, 2, 0}} : orders{{0, 1, 2}, {3, 0, 1}, {2, 3, 0}}) {
        std::vector<std::vector<float>> shards(7 * devices, std::vector<float>(20));
        std::vector<const void*> in;
        std::vector<void*> own, shared;
        for (std::size_t d = 0; d < devices; ++d) {
          for (std::size_t k = 0; k < 7; ++k)
            for (std::size_t i = 0; i < 20; ++i) shards[7 * d + k][i] = static_cast<float>(k + 1 + d) + static_cast<float>(i) / 8;
          for (std::size_t k = 0; k < 4; ++k) in.push_back(shards[7 * d + k].data());
          for (std::size_t k = 0; k < 3; ++k) own.push_back(shards[7 * d + 4 + k].data());
          for (std::size_t k = 0; k < 3; ++k) shared.push_back(shards[7 * d + over[k]].data());
        }
        dynamic::session s(program);
        s.run(comm, in.data(), own.data());
        s.run(comm, in.data(), shared.data());
        for (std::size_t d = 0; d < devices; ++d)
          for (std::size_t k = 0; k < 3; ++k)
            if (shards[7 * d + over[k]] != shards[7 * d + 4 + k]) throw error("output " + std::to_string(k) + " differs");
      }
    };
    CHECK_NOTHROW(launch(simulated{}, 2, check));
    CHECK_NOTHROW(launch(threads{}, 2, check));
  }
}

TEST_CASE("an output is not written over an input that is read afterwards") {
  dynamic::builder b(dynamic::mesh({{"x", 1}}));
  const value x = b.input(dynamic::input<float>({4, 4})), y = b.input(dynamic::input<float>({4, 4}));
  const value h = x + y;
  b.output(h);
  b.output(einsum<"ab,bc->ac">(h, x));
  const auto program = b.compile();
  CHECK_FALSE(program.can_alias(0, 0));
  CHECK(program.can_alias(0, 1));
  CHECK_FALSE(program.can_alias(1, 0));  // the einsum reads it
  CHECK(program.can_alias(1, 1));        // written when y is not read any more
  std::vector<float> a(16, 1), c(16, 2), e(16);
  const auto message = [&](std::vector<float>& first, std::vector<float>& second) {
    return error_of([&] {
      launch(serial{}, 1, [&](auto& comm) {
        const void* in[] = {a.data(), c.data()};
        void* out[] = {first.data(), second.data()};
        dynamic::session(program).run(comm, in, out);
      });
    });
  };
  CHECK(message(a, e).find("step: output 0 is given the memory of input 0, which is read after the output is written; give it "
                           "memory of its own (step::can_alias states the outputs and inputs that may share memory)") !=
        std::string::npos);
  CHECK(message(e, c) == "no error");
  CHECK(c == std::vector<float>(16, 12));
  CHECK_THROWS_AS(static_cast<void>(program.can_alias(2, 0)), error);
  CHECK_THROWS_AS(static_cast<void>(program.can_alias(0, 2)), error);
}

TEST_CASE("a loop writes a weight that it carries over the one it was given") {
  dynamic::builder b(dynamic::mesh({{"x", 1}}));
  const value w = b.input(dynamic::input<float>({64})), g = b.input(dynamic::input<float>({64}));
  b.output(fori_loop(
      3, [&](const value&, const value& carried) { return carried - 0.5 * g; }, w));
  const auto program = b.compile();
  CHECK(program.can_alias(0, 0));
  CHECK_FALSE(program.can_alias(0, 1));  // every trip reads it
}
