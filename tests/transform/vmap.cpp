// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// vmap: a function for a single example, applied to many examples: results and cost. Random programs: vmap_random.cpp.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/transform/vmap.hpp>

namespace {

using namespace gspmd;
using list = std::vector<double>;

dynamic::input_spec f64(std::vector<std::int64_t> shape, std::vector<std::string> sharding = {}) {
  if (sharding.empty()) return dynamic::input<double>(std::move(shape));
  return dynamic::input<double>(std::move(shape), std::move(sharding));
}
list numbers(std::size_t n, double scale = 0.25) {
  list x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = scale * static_cast<double>(static_cast<int>(i * 7 % 11) - 5);
  return x;
}
std::vector<list> run_all(const dynamic::program& p, const std::vector<list>& inputs) {
  std::vector<const void*> given;
  for (const auto& x : inputs) given.push_back(x.data());
  const auto results = p.run(simulated{}, given);
  std::vector<list> found;
  for (const auto& r : results) {
    std::int64_t n = 1;
    for (const auto e : r.shape) n *= e;
    found.emplace_back(r.template data<double>(), r.template data<double>() + n);
  }
  return found;
}
void near(const list& got, const list& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-12));
}
int count_of(const dynamic::program& p, const char* name) {
  int n = 0;
  for (const auto& node : p.view().nodes) n += std::string(detail::name_of(node.op)) == name ? 1 : 0;
  return n;
}
template <class F>
std::string refused(F f, std::vector<std::int64_t> shape = {4, 3}) {
  try {
    static_cast<void>(dynamic::compile(f, dynamic::mesh({{"x", 2}}), f64(shape), f64({3})));
  } catch (const error& e) {
    return e.what();
  }
  return "accepted";
}

/// Functions x -> s x + t, composed in sequence.
struct scaled_sums {
  using values = std::tuple<double, double>;
  static constexpr values identity() { return {1, 0}; }
  static constexpr values combine(values a, values b) {
    return {std::get<0>(a) * std::get<0>(b), std::get<1>(a) * std::get<0>(b) + std::get<1>(b)};
  }
  static constexpr std::array<values, 3> samples() { return {values{2, 1}, values{-1, 3}, values{4, -2}}; }
};

const dynamic::mesh four({{"x", 4}});

}  // namespace

TEST_CASE("vmap: examples that are split send nothing, however many there are") {
  const auto f = [](value x, value w) { return tanh(einsum<"d,df->f">(x, w)); };
  for (const std::int64_t n : {1, 3, 4, 5, 9})
    for (const auto split : {"x", ""}) {
      CAPTURE(n);
      const auto p = dynamic::compile([&](value x, value w) { return vmap<0, not_mapped>(f)(x, w); }, four,
                                      f64({n, 3}, {split, ""}), f64({3, 2}, {"", ""}));
      const auto x = numbers(static_cast<std::size_t>(3 * n)), w = numbers(6);
      if (n > 1) CHECK(p.traffic().bytes == 0);
      list want;
      for (std::size_t e = 0; e < static_cast<std::size_t>(n); ++e)
        for (std::size_t k = 0; k < 2; ++k) {
          double sum = 0;
          for (std::size_t d = 0; d < 3; ++d) sum += x[3 * e + d] * w[2 * d + k];
          want.push_back(std::tanh(sum));
        }
      near(run_all(p, {x, w})[0], want);
    }
}

TEST_CASE("vmap: dims of arguments and results, groups, and results that no example changes") {
  const auto p = dynamic::compile(
      [](value x, value y, value w) {
        const auto [a, b] = vmap<1, -1, not_mapped>(
            [](value u, value v, value shared) {
              return std::tuple{u * v, sum(u) + sum(shared)};
            },
            out_dims<-1>{})(x, y, w);
        const auto [c, d] = vmap<not_mapped, 0>(
            [](value shared, std::tuple<value, value> both) {
              return std::tuple{shared + shared, std::get<0>(both) - std::get<1>(both)};
            },
            out_dims<not_mapped, 1>{})(w, std::tuple{transpose(x, {1, 0}), transpose(y, {1, 0})});
        const auto e = vmap<0, not_mapped>([](value, value shared) { return shared; })(a, w);  // repeated
        return std::tuple{a, b, c, d, e};
      },
      four, f64({2, 5}, {"", "x"}), f64({2, 5}), f64({3}));
  CHECK(p.traffic().bytes == 0);
  const auto x = numbers(10), y = numbers(10, 0.5), w = numbers(3);
  const auto got = run_all(p, {x, y, w});
  list a, b, d;
  for (std::size_t i = 0; i < 10; ++i) a.push_back(x[i] * y[i]), d.push_back(x[i] - y[i]);
  for (std::size_t i = 0; i < 5; ++i) b.push_back(x[i] + x[5 + i] + w[0] + w[1] + w[2]);
  near(got[0], a);
  near(got[1], b);
  near(got[2], {2 * w[0], 2 * w[1], 2 * w[2]});
  near(got[3], d);
  near(got[4], {w[0], w[1], w[2], w[0], w[1], w[2]});
}

TEST_CASE("vmap: work that depends on no example is done once") {
  const auto p = dynamic::compile(
      [](value x, value w) {
        return vmap<0, not_mapped>([](value u, value v) { return einsum<"d,df->f">(u, einsum<"df,fe->de">(v, v)); })(x, w);
      },
      four, f64({100, 4}), f64({4, 4}));
  CHECK(p.flops_per_device() <= 2 * 64 + 2 * 100 * 16);
}

TEST_CASE("vmap in vmap: all distances of two sets, each set split over an axis") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto p = dynamic::compile(
      [](value x, value y) {
        return vmap<0, not_mapped>([](value one, value all) {
          return vmap<not_mapped, 0>([](value a, value b) { return sum((a - b) * (a - b)); })(one, all);
        })(x, y);
      },
      m, f64({5, 3}, {"x", ""}), f64({4, 3}, {"y", ""}));
  CHECK(p.traffic().bytes == 0);
  const auto x = numbers(15), y = numbers(12, 0.5);
  list want;
  for (std::size_t i = 0; i < 5; ++i)
    for (std::size_t j = 0; j < 4; ++j) {
      double sum = 0;
      for (std::size_t d = 0; d < 3; ++d) sum += (x[3 * i + d] - y[3 * j + d]) * (x[3 * i + d] - y[3 * j + d]);
      want.push_back(sum);
    }
  near(run_all(p, {x, y})[0], want);
}

TEST_CASE("vmap and grad: gradients of each example, and of all of them") {
  const auto loss = [](value x, value w) { return sum(tanh(einsum<"d,df->f">(x, w))); };
  const auto p = dynamic::compile(
      [&](value x, value w) {
        const auto each = vmap<0, not_mapped>([&](value u, value v) { return grad(loss(u, v), std::tuple{u, v}); })(x, w);
        const auto all = grad(sum(vmap<0, not_mapped>(loss)(x, w)), std::tuple{x, w});
        const auto seen = vmap<0>([&](value u) { return grad(loss(u, w), w); })(x);  // w from outside
        return std::tuple{std::get<0>(each), sum(std::get<1>(each), {0}), std::get<0>(all), std::get<1>(all), sum(seen, {0})};
      },
      four, f64({6, 3}, {"x", ""}), f64({3, 2}));
  const auto got = run_all(p, {numbers(18), numbers(6)});
  near(got[0], got[2]);
  near(got[1], got[3]);
  near(got[4], got[3]);
  CHECK(std::fabs(got[1][0]) > 1e-3);
}

TEST_CASE("vmap: a gradient by what the argument comes from goes through the argument") {
  const auto p = dynamic::compile(
      [](value w) {
        const value x = w * w;
        return vmap<0>([&](value row) { return grad(sum(row * row), w); })(x);
      },
      four, f64({3, 2}));
  const list w = numbers(6);
  list want(18, 0);
  for (std::size_t e = 0; e < 3; ++e)
    for (std::size_t d = 0; d < 2; ++d) {
      const double x = w[2 * e + d];
      want[6 * e + 2 * e + d] = 4 * x * x * x;
    }
  near(run_all(p, {w})[0], want);
}

TEST_CASE("vmap: a cond of one predicate stays one; of a predicate of each example both branches are computed") {
  const auto f = [](value x, value p) {
    return cond(
        sum(p) > 0, [](value v) { return v * 2.0; }, [](value v) { return v - 1.0; }, x);
  };
  const auto shared =
      dynamic::compile([&](value x, value p) { return vmap<0, not_mapped>(f)(x, p); }, four, f64({5, 2}, {"x", ""}), f64({2}));
  CHECK(count_of(shared, "branch") == 1);
  const auto own =
      dynamic::compile([&](value x, value p) { return vmap(f)(x, p); }, four, f64({5, 2}, {"x", ""}), f64({5, 2}, {"x", ""}));
  CHECK(count_of(own, "branch") == 0);
  CHECK(own.traffic().bytes == 0);
  const auto x = numbers(10), p = numbers(10, -1);
  list want, once;
  for (std::size_t i = 0; i < 10; ++i) {
    want.push_back(p[i / 2 * 2] + p[i / 2 * 2 + 1] > 0 ? 2 * x[i] : x[i] - 1);
    once.push_back(p[0] + p[1] > 0 ? 2 * x[i] : x[i] - 1);
  }
  near(run_all(own, {x, p})[0], want);
  near(run_all(shared, {x, {p[0], p[1]}})[0], once);
}

TEST_CASE("vmap: a while_loop goes on as long as an example does, and those that are done stay") {
  const auto halved = [](value x) {
    return while_loop([](auto now) { return std::get<0>(now) > 1.0; },
                      [](auto now) {
                        return std::tuple{std::get<0>(now) * 0.5, std::get<1>(now) + 1.0};
                      },
                      std::tuple{x, constant<double>(x, {}, 0)});
  };
  const auto p = dynamic::compile([&](value x) { return vmap(halved)(x); }, four, f64({5}, {"x"}));
  const auto got = run_all(p, {{0.5, 3, 100, 1, 17}});
  near(got[0], {0.5, 0.75, 100.0 / 128, 1, 17.0 / 32});
  near(got[1], {0, 2, 7, 0, 5});
}

TEST_CASE("vmap: trips that each example counts itself, rows that each example takes elsewhere") {
  const auto f = [](value x, value n) {
    const auto trips = cast<std::int64_t>(n);
    return fori_loop(
        trips, [&](value i, value sum) { return sum * 2.0 + cast<double>(i) + x; }, constant<double>(x, {}, 0));
  };
  const auto p = dynamic::compile([&](value x, value n) { return vmap(f)(x, n); }, four, f64({4}, {"x"}), f64({4}));
  near(run_all(p, {{1, 2, 3, 4}, {0, 1, 2, 3}})[0], {0, 2, 10, 32});
}

TEST_CASE("vmap of a scan reads and writes one row in a trip, which has all examples; so does its gradient") {
  const auto sums = [](value h, value xs) {
    return scan([](value c, value x) { return std::tuple{c * 0.5 + x, c + x}; }, h, xs);
  };
  const auto p = dynamic::compile(
      [&](value h, value xs) {
        const auto [last, rows] = vmap(sums)(h, xs);
        const auto each = vmap([&](value start, value all) { return grad(std::get<0>(sums(start, all)), all); });
        return std::tuple{last, rows, each(h, xs)};
      },
      four, f64({3}, {"x"}), f64({3, 4}, {"x", ""}));
  CHECK(p.traffic().bytes == 0);
  CHECK(count_of(p, "set_row") > 0);
  CHECK(count_of(p, "scatter_set") + count_of(p, "gather") + count_of(p, "scatter") == 0);
  const auto h = numbers(3), xs = numbers(12);
  list last, rows, gradient;
  for (std::size_t e = 0; e < 3; ++e) {
    double c = h[e];
    for (std::size_t t = 0; t < 4; ++t) {
      rows.push_back(c + xs[4 * e + t]);
      c = c * 0.5 + xs[4 * e + t];
      gradient.push_back(std::ldexp(1, static_cast<int>(t) - 3));
    }
    last.push_back(c);
  }
  const auto got = run_all(p, {h, xs});
  near(got[0], last);
  near(got[1], rows);
  near(got[2], gradient);
}

TEST_CASE("vmap: random numbers of one key are those of all examples, and each has its own where keys are mapped") {
  const auto p = dynamic::compile(
      [](value x) {
        const auto draw = [](value v, value k) { return v * 0.0 + random::uniform<double>(k, {3}); };
        const value key = random::key(x, 7), all = broadcast_in_dim(key, {4}, {});
        const value keys = all + iota<std::uint64_t>(x, {4}, 0);
        return std::tuple{vmap<0, not_mapped>(draw)(x, key), vmap(draw)(x, keys), random::uniform<double>(key + 2, {3})};
      },
      four, f64({4, 3}, {"x", ""}));
  CHECK(p.traffic().bytes == 0);
  const auto got = run_all(p, {numbers(12)});
  for (std::size_t i = 0; i < 12; ++i) CHECK(got[0][i] == got[0][i % 3]);
  for (std::size_t i = 0; i < 3; ++i) CHECK(got[1][6 + i] == got[2][i]);
  CHECK(got[1][0] != got[1][3]);
}

TEST_CASE("vmap: names and policies of the function are those of what it becomes") {
  const auto f = [](value x, value w) {
    return named<"layer">([](value u, value v) { return tanh(einsum<"d,df->f">(u, v)); }, x, w);
  };
  const auto p =
      dynamic::compile([&](value x, value w) { return vmap<0, not_mapped>(f)(x, w); }, four, f64({8, 3}, {"x", ""}), f64({3, 2}));
  CHECK(explain(p, {.scope = "layer"}).find("einsum") != std::string::npos);
  const auto forbid = [&](value x, value w) {
    return vmap<0, not_mapped>(
        [&](value u, value v) { return with_policy({.forbid_reshard = true}, f, u, reshard(v, split<"x", _>{})); })(x, w);
  };
  CHECK_THROWS_AS(static_cast<void>(dynamic::compile(forbid, four, f64({8, 4}, {"x", ""}), f64({4, 2}))), const error&);
}

TEST_CASE("vmap: reductions and scans by a monoid of the user's, along a dim of the example") {
  const auto p = dynamic::compile(
      [](value x, value y) {
        return vmap([](value u, value v) {
          const auto all = reduce_by<scaled_sums>({u, v}, 0), each = scan_by<scaled_sums>({u, v}, 0);
          return std::tuple{all[1], each[1]};
        })(x, y);
      },
      four, f64({4, 3}, {"x", ""}), f64({4, 3}, {"x", ""}));
  CHECK(p.traffic().bytes == 0);
  const auto x = numbers(12, 0.5), y = numbers(12);
  const auto got = run_all(p, {x, y});
  for (std::size_t e = 0; e < 4; ++e) {
    double sum = 0;
    for (std::size_t t = 0; t < 3; ++t) {
      sum = sum * x[3 * e + t] + y[3 * e + t];
      CHECK(got[1][3 * e + t] == doctest::Approx(sum));
    }
    CHECK(got[0][e] == doctest::Approx(sum));
  }
}

TEST_CASE("vmap: a pipeline whose stages are vectorised sends its state on by permutes alone (GSPMD 3.3)") {
  constexpr std::int64_t stages = 4, batches = 6, width = 3;
  const auto stage = [](value w, value x) { return tanh(einsum<"bd,de->be">(x, w)); };
  const auto pipeline = [&](value ws, value xs) {
    const value padded = pad(xs, {0, 0, 0}, {stages - 1, 0, 0});
    const value start = zeros_like(broadcast_in_dim(slice(xs, {0, 0, 0}, {1, 2, width}), {stages, 2, width}, {0, 1, 2}));
    const value is_first = equal(iota<std::int32_t>(xs, {stages, 2, width}, 0), 0);
    const auto [last, made] = scan(
        [&](value state, value x) {
          const value in = where(is_first, broadcast_in_dim(x, {stages, 2, width}, {1, 2}), shift(state, -1, along(0)));
          const value out = reshard(vmap(stage)(ws, in), split<"stage", _, _>{});
          return std::tuple{out, out};
        },
        start, padded);
    return reshard(made, split<_, "stage", _, _>{});
  };
  const dynamic::mesh m({{"stage", 4}});
  const auto p =
      dynamic::compile(pipeline, m, f64({stages, width, width}, {"stage", "", ""}), f64({batches, 2, width}, {"", "", ""}));
  for (const auto& c : p.collectives()) CHECK(c == collective(collective_permute<"stage">));
  CHECK(p.traffic().in(collective_kind::collective_permute).collectives == batches + stages - 1);
  const auto w = numbers(stages * width * width), x = numbers(batches * 2 * width, 0.5);
  const auto got = run_all(p, {w, x})[0];
  for (std::size_t t = 0; t < batches; ++t)
    for (std::size_t b = 0; b < 2; ++b) {
      list h(x.begin() + static_cast<std::ptrdiff_t>((2 * t + b) * width),
             x.begin() + static_cast<std::ptrdiff_t>((2 * t + b + 1) * width));
      for (std::size_t s = 0; s < stages; ++s) {
        list next(width, 0);
        for (std::size_t d = 0; d < width; ++d)
          for (std::size_t e = 0; e < width; ++e) next[e] += h[d] * w[(s * width + d) * width + e];
        for (auto& v : next) v = std::tanh(v);
        h = next;
      }
      const auto at = (((t + stages - 1) * stages + stages - 1) * 2 + b) * width;
      near(list(got.begin() + static_cast<std::ptrdiff_t>(at), got.begin() + static_cast<std::ptrdiff_t>(at + width)), h);
    }
}

TEST_CASE("vmap: mistakes are one sentence") {
  const auto holds = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto id = [](value x) { return x; };
  const auto add = [](value x, value y) { return x + y; };
  holds(refused([&](value x, value y) { return vmap(add)(x, y); }),
        "there are 4 examples along dim 0 of argument 0, and 3 along dim 0 of argument 1");
  holds(refused([&](value x, value) { return vmap<2>(id)(x); }), "argument 0 is [4,3] and has no dim 2 to be mapped along");
  holds(refused([&](value x, value) { return vmap<0>(id, out_dims<3>{})(x); }), "there is no dim 3 for them");
  holds(refused([&](value x, value) { return vmap<0>(id, out_dims<not_mapped>{})(x); }), "result 0 depends on a mapped argument");
  holds(refused([&](value x, value y) { return vmap<0>([y](value) { return y; }, out_dims<0>{})(x); }),
        "result 0 does not depend on a mapped argument");
  holds(refused([&](value x, value) { return vmap<0>(id, out_dims<0, 1>{})(x); }),
        "out_dims names 2 dims, and the function returns 1 values");
  holds(refused([&](value x, value) {
          value leaked;
          const value y = vmap<0>([&leaked](value row) {
            leaked = row * 2.0;
            return row;
          })(x);
          return y + leaked;
        }),
        "of the body of a loop or conditional outside of the body");
  holds(refused(
            [&](value x, value) {
              return vmap<0>([](value row) { return broadcast_in_dim(row, std::vector<std::int64_t>(32, 1), {31}); })(x);
            },
            {4, 1}),
        "would have 33 dims; a tensor has at most 32");
  const auto sorted = local_op<"[t]->[t]">([](auto x, auto y) {
    for (std::int64_t i = 0; i < x.extent(0); ++i) y(i) = x(i) + x(0);
  });
  holds(refused([&](value x, value) { return vmap([&](value row) { return sorted(row); })(x); }),
        "its function takes a fixed number of dims");
}
