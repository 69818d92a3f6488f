// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/comm/simulated.hpp>
#include <gspmd/comm/threads.hpp>
#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/index/random.hpp>
#include <gspmd/staggered.hpp>

#include "support/error_of.hpp"

// Fields whose extents differ by a few elements get a common extent, and nothing else changes.

using namespace gspmd;

#ifndef GSPMD_STAGGERED_SEEDS
#define GSPMD_STAGGERED_SEEDS 150U
#endif

namespace {

using whole = std::int64_t;
using numbers_of = std::vector<double>;

numbers_of drawn(whole count) {
  numbers_of x(static_cast<std::size_t>(count));
  std::uint32_t s = 7;
  for (auto& e : x) e = static_cast<double>((s = s * 1664525U + 1013904223U) >> 8U) / 16777216.0 - 0.5;
  return x;
}
constexpr value cut(value x, whole i, whole i_end, whole j, whole j_end) { return slice(x, {i, j}, {i_end, j_end}); }

/// Yee's scheme for e [n+1, m+1], hx [n+1, m] and hy [n, m+1], with e = 0 at the border: in three textbook forms, and
/// with stencils.
constexpr auto yee_step(value e, value hx, value hy, int way) {
  const whole n = e.shape()[0] - 1, m = e.shape()[1] - 1;
  if (way == 3) {
    hx = stencil<1, 1>([](auto h, auto f) { return h(0, 0) - 0.5 * (f(0, 1) - f(0, 0)); }, hx, e);
    hy = stencil<1, 1>([](auto h, auto f) { return h(0, 0) + 0.5 * (f(1, 0) - f(0, 0)); }, hy, e);
    const value next = stencil<1, 1>(
        [](auto f, auto g, auto h) { return f(0, 0) + 0.5 * (h(0, 0) - h(-1, 0) - g(0, 0) + g(0, -1)); }, e, hx, hy);
    return std::tuple{pad(cut(next, 1, n, 1, m), {1, 1}, {1, 1}), hx, hy};
  }
  hx = hx - 0.5 * (cut(e, 0, n + 1, 1, m + 1) - cut(e, 0, n + 1, 0, m));
  hy = hy + 0.5 * (cut(e, 1, n + 1, 0, m + 1) - cut(e, 0, n, 0, m + 1));
  const value curl = cut(hy, 1, n, 1, m) - cut(hy, 0, n - 1, 1, m) - cut(hx, 1, n, 1, m) + cut(hx, 1, n, 0, m - 1);
  if (way == 0) return std::tuple{e + 0.5 * pad(curl, {1, 1}, {1, 1}), hx, hy};
  const value inside = cut(e, 1, n, 1, m) + 0.5 * curl;
  if (way == 1) return std::tuple{pad(inside, {1, 1}, {1, 1}), hx, hy};
  const value row = constant<double>(e, {1, m - 1}, 0), column = constant<double>(e, {n + 1, 1}, 0);
  return std::tuple{concatenate({column, concatenate({row, inside, row}, 0), column}, 1), hx, hy};
}
void yee_by_hand(numbers_of& e, numbers_of& hx, numbers_of& hy, whole n, whole m) {
  const auto at = [](numbers_of& f, whole i, whole j, whole columns) -> double& {
    return f[static_cast<std::size_t>(i * columns + j)];
  };
  for (whole i = 0; i <= n; ++i)
    for (whole j = 0; j < m; ++j) at(hx, i, j, m) -= 0.5 * (at(e, i, j + 1, m + 1) - at(e, i, j, m + 1));
  for (whole i = 0; i < n; ++i)
    for (whole j = 0; j <= m; ++j) at(hy, i, j, m + 1) += 0.5 * (at(e, i + 1, j, m + 1) - at(e, i, j, m + 1));
  for (whole i = 0; i <= n; ++i)
    for (whole j = 0; j <= m; ++j)
      if (i > 0 && i < n && j > 0 && j < m)
        at(e, i, j, m + 1) += 0.5 * (at(hy, i, j, m + 1) - at(hy, i - 1, j, m + 1) - at(hx, i, j, m) + at(hx, i, j - 1, m));
}

dynamic::program yee(whole n, whole m, whole rows, whole columns, int way, int steps) {
  const auto field = [](whole i, whole j) { return dynamic::input<double>({i, j}, {"x", "y"}); };
  return dynamic::compile(
      [&](value e, value hx, value hy) {
        return staggered(
            [&](value e0, value hx0, value hy0) {
              return fori_loop(
                  steps, [&](value, value f, value g, value h) { return yee_step(f, g, h, way); }, e0, hx0, hy0);
            },
            e, hx, hy);
      },
      dynamic::mesh({{"x", rows}, {"y", columns}}), field(n + 1, m + 1), field(n + 1, m), field(n, m + 1));
}
/// The same number of points, with equal shapes of all fields.
dynamic::program of_one_shape(whole n, whole m, whole rows, whole columns, int steps) {
  const auto field = dynamic::input<double>({n + 1, m + 1}, {"x", "y"});
  const auto body = [](value, value e, value hx, value hy) {
    hx = hx - 0.5 * (shift(e, 1, along(1)) - e);
    hy = hy + 0.5 * (shift(e, 1, along(0)) - e);
    return std::tuple{e + 0.5 * (hy - shift(hy, -1, along(0)) - hx + shift(hx, -1, along(1))), hx, hy};
  };
  return dynamic::compile([&](value e, value hx, value hy) { return fori_loop(steps, body, e, hx, hy); },
                          dynamic::mesh({{"x", rows}, {"y", columns}}), field, field, field);
}

template <class Backend>
void check_yee(const Backend& backend, whole n, whole m, whole rows, whole columns, int way) {
  const auto p = yee(n, m, rows, columns, way, 3);
  numbers_of e = drawn((n + 1) * (m + 1)), hx = drawn((n + 1) * m), hy = drawn(n * (m + 1));
  for (whole i = 0; i <= n; ++i)
    for (whole j = 0; j <= m; ++j)
      if (i == 0 || i == n || j == 0 || j == m) e[static_cast<std::size_t>(i * (m + 1) + j)] = 0;
  const auto out = p.run(backend, e, hx, hy);
  for (int step = 0; step < 3; ++step) yee_by_hand(e, hx, hy, n, m);
  std::size_t k = 0;
  for (const auto* const f : {&e, &hx, &hy}) {
    REQUIRE(out[k].bytes.size() == f->size() * sizeof(double));
    bool is_same = true;  // -0.0 equals 0
    for (std::size_t i = 0; i < f->size(); ++i) is_same = is_same && out[k].template data<double>()[i] == (*f)[i];
    CHECK(is_same);
    ++k;
  }
}

/// A random program of slices, paddings and similar operators on two fields [n, m] and [n+1, m-1]. The numbers are
/// whole, so that sums are equal in any order.
class random_fields {
 public:
  explicit random_fields(std::uint32_t seed) : state_(seed) {}

  std::vector<value> traced(const std::vector<value>& fields, int count) {
    values_ = fields;
    for (int k = 0; k < count; ++k) values_.push_back(next(any()));
    return {values_.end() - std::min(count, 4), values_.end()};
  }
  int below(int n) {
    return static_cast<int>(((state_ = state_ * 1664525U + 1013904223U) >> 8U) % static_cast<std::uint32_t>(n));
  }

 private:
  value any() { return values_[static_cast<std::size_t>(below(static_cast<int>(values_.size())))]; }
  value next(value x) {
    const auto shape = x.shape();  // a copy: more nodes move it
    const int d = below(2);
    boundary beyond[] = {boundary::zero(), boundary::constant(3), boundary::edge(), boundary::reflect(), boundary::wrap()};
    switch (below(10)) {
      case 0: return cut_anyhow(x);
      case 1: return pad(x, {below(3) - 1, below(3)}, {below(3), below(3) - 1}, below(3));
      case 2: {
        whole row[] = {shape[0], shape[1]};
        row[d] = 1 + below(2);
        const value more = constant<double>(x, integers(row, 2), below(4));
        return below(2) == 0 ? concatenate({x, more}, d) : concatenate({more, x, more}, d);
      }
      case 3: return shift(x, below(5) - 2, along(d), beyond[below(5)]);
      case 4: return roll(x, below(3) - 1, along(d));
      case 5: return x + iota<double>(x, integers(shape.begin(), 2), d);
      case 6: return x - broadcast_in_dim(sum(x, 1 - d), integers(shape.begin(), 2), {d});
      case 7:
        return fori_loop(
            1 + below(3),
            [](value, value y) {
              return y + pad(2.0 * cut(y, 1, y.shape()[0], 0, y.shape()[1]), {1, 0}, {0, 0});
            },
            x);
      default: {  // with another value, cut to the same shape
        value y = any();
        whole end[2], of_x[2], of_y[2];
        for (int k = 0; k < 2; ++k) {
          end[k] = std::min(shape[k], y.shape()[k]);
          of_x[k] = below(static_cast<int>(std::min<whole>(shape[k] - end[k], 2)) + 1);
          of_y[k] = below(static_cast<int>(std::min<whole>(y.shape()[k] - end[k], 2)) + 1);
        }
        const value a = cut(x, of_x[0], of_x[0] + end[0], of_x[1], of_x[1] + end[1]);
        const value b = cut(y, of_y[0], of_y[0] + end[0], of_y[1], of_y[1] + end[1]);
        return below(2) == 0 ? a - b : max(a, 2.0 * b);
      }
    }
  }
  value cut_anyhow(value x) {
    const whole i = below(2), j = below(2), i_end = x.shape()[0] - below(2), j_end = x.shape()[1] - below(2);
    return i < i_end && j < j_end ? cut(x, i, i_end, j, j_end) : x;
  }

  std::uint32_t state_;
  std::vector<value> values_;
};

}  // namespace

TEST_CASE("staggered: Yee's scheme on all meshes up to 8 devices, uneven, with single elements, more devices than elements") {
  for (const auto& [n, m] : {std::pair<whole, whole>{1, 2}, {2, 9}, {7, 16}, {11, 8}, {33, 5}})
    for (whole rows = 1; rows <= 8; ++rows)
      for (whole columns = 1; rows * columns <= 8; ++columns)
        for (int way = 0; way < 4; ++way) {
          CAPTURE(n);
          CAPTURE(m);
          CAPTURE(rows);
          CAPTURE(columns);
          CAPTURE(way);
          check_yee(simulated{}, n, m, rows, columns, way);
        }
  check_yee(threads{}, 41, 33, 2, 2, 0);
  check_yee(threads{}, 41, 33, 1, 3, 2);
}

TEST_CASE("staggered: as many messages as fields of one shape, and no gather") {
  for (const auto& [rows, columns] : {std::pair<whole, whole>{2, 1}, {2, 2}, {1, 3}})
    for (int way = 0; way < 4; ++way) {
      CAPTURE(rows);
      CAPTURE(columns);
      CAPTURE(way);
      constexpr int steps = 50;
      const auto p = yee(41, 33, rows, columns, way, steps);
      const auto one = of_one_shape(41, 33, rows, columns, steps);
      CHECK(p.traffic().messages <= one.traffic().messages + 8);  // for the first and the last steps
      CHECK(p.traffic().in(collective_kind::all_gather).collectives == 0);
      CHECK(p.traffic().bytes <= one.traffic().bytes + 8 * 42 * 8);
    }
}

TEST_CASE("staggered: random programs have the values that they have without it") {
  int aligned = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= GSPMD_STAGGERED_SEEDS; ++seed) {
    random_fields random(seed);
    const whole n = 6 + random.below(8), m = 5 + random.below(9), rows = 1 + random.below(3), columns = 1 + random.below(3);
    const int count = 3 + random.below(6);
    const auto compiled = [&](whole p, whole q, bool is_staggered) {
      const auto program = [&](value a, value b) {
        random_fields again(seed + 1000);
        if (!is_staggered) return again.traced({a, b}, count);
        return staggered([&](value c, value d) { return again.traced({c, d}, count); }, a, b);
      };
      return dynamic::compile(program, dynamic::mesh({{"x", p}, {"y", q}}), dynamic::input<double>({n, m}, {"x", "y"}),
                              dynamic::input<double>({n + 1, m - 1}, {"x", "y"}));
    };
    numbers_of a, b;
    for (whole k = 0; k < n * m; ++k) a.push_back(random.below(9) - 4);
    for (whole k = 0; k < (n + 1) * (m - 1); ++k) b.push_back(random.below(9) - 4);
    CAPTURE(seed);
    CAPTURE(n);
    CAPTURE(m);
    CAPTURE(rows);
    CAPTURE(columns);
    CAPTURE(count);
    const auto plain = compiled(1, 1, false);
    const auto refusal = caught::error_of([&] { static_cast<void>(compiled(rows, columns, true)); });
    if (caught::contains(refusal, "so no field is staggered")) {  // for any devices, because the message is about extents
      CHECK(caught::contains(caught::error_of([&] { static_cast<void>(compiled(1, 1, true)); }), "so no field is staggered"));
      ++refused;
      continue;
    }
    const auto staggered_one = compiled(rows, columns, true);
    aligned += compiled(1, 1, true) == plain ? 0 : 1;
    const auto wanted = plain.run(serial{}, a, b), found = staggered_one.run(simulated{}, a, b);
    REQUIRE(wanted.size() == found.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      CHECK(wanted[k].shape == found[k].shape);
      CHECK(wanted[k].bytes == found[k].bytes);
    }
  }
  CHECK(aligned > static_cast<int>(GSPMD_STAGGERED_SEEDS) / 8);
  CHECK(refused < static_cast<int>(GSPMD_STAGGERED_SEEDS) / 8);
}

namespace {

/// Checks that a program has the same results on 2 x 2 simulated devices with and without `staggered`, and that the
/// fields were aligned.
template <class F>
void check_same(F f, const dynamic::input_spec& of_a, const dynamic::input_spec& of_b, const numbers_of& a, const numbers_of& b) {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto with = dynamic::compile([&](value x, value y) { return staggered(f, x, y); }, m, of_a, of_b);
  const auto without = dynamic::compile(f, m, of_a, of_b);
  CHECK(!(with == without));
  const auto got = with.run(simulated{}, a, b), want = without.run(simulated{}, a, b);
  REQUIRE(got.size() == want.size());
  for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k].bytes == want[k].bytes);
}
dynamic::input_spec field(whole n, whole m) { return dynamic::input<double>({n, m}, {"x", "y"}); }

}  // namespace

TEST_CASE("staggered: annotations of inputs stay where a slice begins at the first element") {
  const auto slices = [](value e, value h) {
    value now = e;
    for (int step = 0; step < 4; ++step) {
      h = h - (cut(now, 1, 10, 0, 8) - cut(now, 0, 9, 0, 8));
      now = now + pad(cut(h, 1, 9, 0, 8) - cut(h, 0, 8, 0, 8), {1, 0}, {1, 0});
    }
    return h;
  };
  const auto p = dynamic::compile([&](value e, value h) { return staggered(slices, e, h); }, dynamic::mesh({{"x", 2}, {"y", 2}}),
                                  dynamic::input<double>({10, 8}, {"y", ""}), dynamic::input<double>({9, 8}, {"x", ""}));
  CHECK(p.input(0).sharding() == std::vector<std::string>{"y", ""});
  CHECK(p.input(1).sharding() == std::vector<std::string>{"x", ""});
  check_same(slices, field(10, 8), field(9, 8), drawn(80), drawn(72));
  const auto moved = [&](value e, value h) {
    return std::tuple{2.0 * reshard(cut(e, 0, 10, 0, 8), split<_, "x">{}), slices(e, h)};
  };
  check_same(moved, field(10, 8), field(9, 8), drawn(80), drawn(72));
}

TEST_CASE("staggered: indices, drawn numbers and repeated constants beside fields") {
  const auto program = [](value e, value h) {
    const value index = iota<double>(h, {9, 8}, 0), at_e = iota<double>(e, {10, 8}, 0);
    const value row = broadcast_in_dim(constant<double>(h, {9}, 0.25) * 3.0, {9, 8}, {0});
    const value drawn_e = random::uniform<double>(random::key(e, 5), {10, 8});
    const value difference = cut(e * drawn_e + at_e, 1, 10, 0, 8) - cut(e, 0, 9, 0, 8);
    return std::tuple{h * index + row * difference, e + pad(h - row, {1, 0}, {0, 0})};
  };
  check_same(program, field(10, 8), field(9, 8), drawn(80), drawn(72));
}

TEST_CASE("staggered: integers are divided by what nothing reads too, and that does not trap") {
  const auto program = [](value e, value h) {
    const value of_h = cast<std::int32_t>(h), of_e = cast<std::int32_t>(e);
    const value quotient = (cut(of_e, 1, 10, 0, 8) - cut(of_e, 0, 9, 0, 8)) / of_h;
    return std::tuple{quotient, of_e + pad(quotient / of_h, {1, 0}, {0, 0})};
  };
  numbers_of e, h;
  for (int k = 0; k < 80; ++k) e.push_back(k * 37 % 101);
  for (int k = 0; k < 72; ++k) h.push_back(k % 5 + 1);
  check_same(program, field(10, 8), field(9, 8), e, h);
}
