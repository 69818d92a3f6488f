// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Loops whose number of trips is known at run time, and a choice of several bodies.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

using namespace gspmd;
using std::int64_t;

namespace {

/// Conjugate gradients for a x = b until |r|^2 is at most `tolerance`: x and the number of trips.
const auto solve = [](value a, value b, value tolerance) {
  const value trips = constant<int64_t>(b, {}, 0);
  const auto found = while_loop([&](const auto& now) { return einsum("i,i->", std::get<1>(now), std::get<1>(now)) > tolerance; },
                                [&](const auto& now) {
                                  const auto& [x, r, p, n] = now;
                                  const value ap = einsum("ij,j->i", a, p), rr = einsum("i,i->", r, r);
                                  const value alpha = rr / einsum("i,i->", p, ap), next = r - alpha * ap;
                                  return std::tuple{x + alpha * p, next, next + einsum("i,i->", next, next) / rr * p, n + 1};
                                },
                                std::tuple{zeros_like(b), b, b, trips});
  return std::tuple{std::get<0>(found), std::get<3>(found)};
};

}  // namespace

TEST_CASE("while_loop: conjugate gradients to a tolerance inside one step, on any mesh") {
  constexpr int64_t n = 13;
  std::vector<double> a(n * n), b(n);
  for (int64_t i = 0; i < n; ++i) {
    b[static_cast<std::size_t>(i)] = 1 + static_cast<double>(i % 3);
    for (int64_t j = 0; j < n; ++j)
      a[static_cast<std::size_t>(i * n + j)] =
          i == j ? 4 + static_cast<double>(i) : 1 / static_cast<double>(1 + (i - j) * (i - j));
  }
  const auto try_on = [&](const dynamic::mesh& m, const auto& backend, const std::vector<std::string>& sharding) {
    const auto p = dynamic::compile(solve, m, dynamic::input<double>({n, n}, sharding), dynamic::input<double>({n}),
                                    dynamic::input<double>({}));
    int64_t before = 0;
    for (const double tolerance : {1e9, 1e-3, 1e-20}) {
      const auto y = p.run(backend, {a.data(), b.data(), &tolerance});
      const auto* const x = y[0].template data<double>();
      double off = 0;
      for (std::size_t i = 0; i < n; ++i) {
        double r = b[i];
        for (std::size_t j = 0; j < n; ++j) r -= a[i * n + j] * x[j];
        off += r * r;
      }
      CHECK(off <= tolerance * 1.01 + 1e-24);
      const auto trips = y[1].template data<int64_t>()[0];
      CHECK((tolerance > 1 ? trips == 0 : trips > before));
      CHECK(trips <= n + 2);
      before = trips;
    }
    return p;
  };
  const dynamic::mesh four({{"x", 4}}), grid({{"x", 2}, {"y", 3}});
  try_on(dynamic::mesh({{"x", 1}}), serial{}, {"", ""});
  try_on(four, simulated{}, {"x", ""});
  try_on(four, threads{}, {"", "x"});
  const auto p = try_on(grid, simulated{}, {"x", "y"});
  CHECK(caught::contains(explain(p), "loop (while its condition holds; costs are those of one trip)"));
}

TEST_CASE("while_loop: in a loop, around a loop, and one that carries what takes turns") {
  const dynamic::mesh m({{"x", 2}});
  // The Collatz steps of each number of trips, three times over.
  const auto steps = [](value start) {
    return fori_loop(
        3,
        [&](value, value total) {
          const auto found =
              while_loop([](const auto& now) { return std::get<0>(now) > 1; },
                         [](const auto& now) {
                           const auto& [at, count] = now;
                           const value next = cond(
                               equal(at % 2, 0), [](value x) { return x / 2; }, [](value x) { return 3 * x + 1; }, at);
                           return std::tuple{next, count + 1};
                         },
                         std::tuple{start, constant<int64_t>(start, {}, 0)});
          return total + std::get<1>(found);
        },
        constant<int64_t>(start, {}, 0));
  };
  const auto p = dynamic::compile(steps, m, dynamic::input<int64_t>({}));
  for (const int64_t start : {1, 2, 7, 27}) {
    int64_t count = 0;
    for (int64_t at = start; at > 1; at = at % 2 == 0 ? at / 2 : 3 * at + 1) ++count;
    CHECK(p.run(threads{}, {&start})[0].data<int64_t>()[0] == 3 * count);
  }
  const auto doubled = [](value n, value x) {
    return fori_loop(
        n,
        [&](value i, value now, value other) {
          return std::tuple{other + cast<float>(i), now * 2.0};
        },
        x, x + 1.0);
  };
  const auto q = dynamic::compile(doubled, m, dynamic::input<std::int32_t>({}), dynamic::input<float>({5}, {"x"}));
  for (const std::int32_t n : {-1, 0, 1, 2, 5}) {
    const std::vector<float> x{1, 2, 3, 4, 5};
    const auto y = q.run(simulated{}, {&n, x.data()});
    for (std::size_t k = 0; k < 5; ++k) {
      float now = x[k], other = x[k] + 1;
      for (std::int32_t i = 0; i < n; ++i) {
        const float next = other + static_cast<float>(i);
        other = now * 2;
        now = next;
      }
      CHECK(y[0].data<float>()[k] == now);
      CHECK(y[1].data<float>()[k] == other);
    }
  }
}

TEST_CASE("switch_ takes the body of its index, the first or the last one beyond them; gradients") {
  const dynamic::mesh m({{"x", 2}});
  const auto chosen = [](value index, value x) {
    const auto f = [&](value in) {
      return switch_(index,
                     std::tuple{[](value v) { return v * 2.0; }, [](value v) { return v * v; }, [](value v) { return -v; }},
                     std::tuple{in});
    };
    const value y = f(x);
    return std::tuple{y, grad(sum(y), x)};
  };
  const auto p = dynamic::compile(chosen, m, dynamic::input<int64_t>({}), dynamic::input<float>({3}, {"x"}));
  const std::vector<float> x{1, 2, 3};
  for (const int64_t index : {-5, 0, 1, 2, 7}) {
    const auto y = p.run(simulated{}, {&index, x.data()});
    const float wanted = index <= 0 ? 6 : index == 1 ? 9 : -3, slope = index <= 0 ? 2 : index == 1 ? 6 : -1;
    CHECK(y[0].data<float>()[2] == wanted);
    CHECK(y[1].data<float>()[2] == slope);
  }
}

TEST_CASE("while_loop: what is carried changes its sharding in the body, and is one sharding again") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  dynamic::builder b(m);
  using names = std::vector<std::string>;
  const value a = b.input(dynamic::input<int64_t>({6, 5}, {"x", "y"}));
  const auto result = while_loop([](const auto& now) { return std::get<1>(now) < 3; },
                                 [&](const auto& now) {
                                   const value turned = b.reshard(std::get<0>(now) * 3, names{"y", "x"});
                                   const value sums = b.reshard(cumsum(turned, 0), names{"", "y,x"});
                                   return std::tuple{b.reshard(sums - turned, names{"", "x"}), std::get<1>(now) + 1};
                                 },
                                 std::tuple{a, constant<int64_t>(a, {}, 0)});
  b.output(b.reshard(std::get<0>(result), names{"y", ""}));
  const auto p = b.compile();
  CHECK(p.traffic().bytes > 0);
  std::vector<int64_t> x(30), want;
  for (std::size_t i = 0; i < 30; ++i) x[i] = static_cast<int64_t>(i * 7 % 11) - 5;
  want = x;
  for (int trip = 0; trip < 3; ++trip)
    for (std::size_t c = 0; c < 5; ++c) {
      int64_t sum = 0;
      for (std::size_t r = 0; r < 6; ++r) {
        auto& v = want[r * 5 + c];
        v *= 3;
        sum += v;
        v = sum - v;
      }
    }
  for (const bool on_threads : {true, false}) {
    const auto y = on_threads ? p.run(threads{}, {x.data()}) : p.run(simulated{}, {x.data()});
    CHECK(std::equal(want.begin(), want.end(), y[0].data<int64_t>()));
  }
}

TEST_CASE("loops and branches of as many values as are known at run time") {
  const dynamic::mesh m({{"x", 2}});
  using values = std::vector<value>;
  const auto rotated = [](value n, value x) {
    const values three{x, x * 2, x * 3};
    const auto on = [](const values& now) { return values{now[1], now[2], now[0] + 1}; };
    const values fixed = fori_loop(
        2, [&](value, const values& now) { return on(now); }, three);
    const values counted = fori_loop(
        n, [&](value, const values& now) { return on(now); }, fixed);
    const values last = while_loop([](const values& now) { return sum(now[0]) < 100; }, on, counted);
    return cond(
        n > 1, [](const values& now) { return now; },
        [](const values& now) {
          return values{now[2], now[1], now[0]};
        },
        last);
  };
  dynamic::builder b(m);
  const value n = b.input(dynamic::input<int64_t>({})), x = b.input(dynamic::input<int64_t>({3}, {"x"}));
  for (const value v : rotated(n, x)) b.output(v);
  const auto p = b.compile();
  const std::vector<int64_t> data{1, 2, 5};
  for (const int64_t trips : {0, 1, 4}) {
    const auto y = p.run(simulated{}, {&trips, data.data()});
    std::array<std::array<int64_t, 3>, 3> now{};
    for (std::size_t k = 0; k < 3; ++k)
      for (std::size_t i = 0; i < 3; ++i) now[k][i] = data[i] * static_cast<int64_t>(k + 1);
    const auto turn = [&] { now = {now[1], now[2], {now[0][0] + 1, now[0][1] + 1, now[0][2] + 1}}; };
    for (int64_t t = 0; t < 2 + trips; ++t) turn();
    while (now[0][0] + now[0][1] + now[0][2] < 100) turn();
    if (trips <= 1) std::swap(now[0], now[2]);
    for (std::size_t k = 0; k < 3; ++k) CHECK(std::equal(now[k].begin(), now[k].end(), y[k].data<int64_t>()));
  }
  CHECK(caught::contains(caught::refusal([&] {
                           dynamic::compile(
                               [](value v) {
                                 return fori_loop(
                                     2, [](value, const values& now) { return values{now[0]}; }, values{v, v})[0];
                               },
                               m, dynamic::input<float>({4}));
                         }),
                         "fori_loop at while_loops.cpp"));
}

TEST_CASE("while_loop: what is wrong with one") {
  const dynamic::mesh two({{"x", 2}});
  const auto said = [&](auto f) { return caught::refusal([&] { dynamic::compile(f, two, dynamic::input<float>({4}, {"x"})); }); };
  const auto below = [](value x) { return sum(x) < 10.0; };
  CHECK(caught::contains(said([&](value x) {
                           return while_loop(
                               below, [](value v) { return cast<double>(v); }, x);
                         }),
                         "result 0 of the body is f64[4] and the carried value is f32[4]; they must have one type and shape"));
  CHECK(caught::contains(
      said([&](value x) { return while_loop([](value v) { return v < 1.0; }, [](value v) { return v + 1.0; }, x); }),
      "the condition is pred[4]; it must be one bool, of rank 0"));
  CHECK(caught::contains(said([&](value x) {
                           return grad(sum(while_loop(
                                           below, [](value v) { return v + 1.0; }, x)),
                                       x);
                         }),
                         "while_loop at while_loops.cpp"));
  CHECK(caught::contains(said([&](value x) {
                           return grad(sum(stop_gradient(while_loop(
                                               below, [](value v) { return v + 1.0; }, x)) *
                                           x),
                                       x);
                         }),
                         "accepted"));
}
