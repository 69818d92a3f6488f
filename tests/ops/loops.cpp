// SPDX-License-Identifier: Apache-2.0
// group: operators
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "support/equal_plans.hpp"

// Loops and conditionals, compared with the same program, unrolled.

namespace {

using namespace gspmd;

array<double> counted(std::initializer_list<std::int64_t> shape, double scale = 0.25) {
  array<double> a(shape);
  for (std::int64_t i = 0; i < a.size(); ++i) a[i] = scale * static_cast<double>((i * 7) % 11 - 5);
  return a;
}

/// fori_loop as its trips written one after the other.
template <class Body, class... Carry>
auto unrolled(std::int64_t n, value like, Body body, Carry... init) {
  std::tuple<Carry...> carried{init...};
  for (std::int64_t i = 0; i < n; ++i) {
    const value counter = constant<std::int64_t>(like, {}, i);
    if constexpr (sizeof...(Carry) == 1) std::get<0>(carried) = body(counter, std::get<0>(carried));
    else carried = std::apply([&](auto... c) { return body(counter, c...); }, carried);
  }
  return carried;
}

struct wanted_result {
  std::vector<double> data;
  std::string difference(const dynamic::any_array& got, double tolerance = 1e-9) const {
    const auto count = static_cast<std::int64_t>(data.size());
    if (static_cast<std::int64_t>(got.bytes.size()) != count * 8) return "another size";
    for (std::int64_t i = 0; i < count; ++i) {
      const double d = got.data<double>()[i] - data[static_cast<std::size_t>(i)];
      if (!(d <= tolerance && d >= -tolerance))
        return "element " + std::to_string(i) + " is " + std::to_string(got.data<double>()[i]) + ", not " +
               std::to_string(data[static_cast<std::size_t>(i)]);
    }
    return {};
  }
};

/// Both programs give the same on simulated devices and on threads, for every sharding of the inputs from a list.
template <class Program, class Plain>
void compare(const Program& program, const Plain& plain, const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<array<double>> data;
  double scale = 0.2;
  for (const auto& s : shapes) {
    detail::extents e;
    for (const auto x : s) e.push_back(x);
    data.emplace_back(e);
    for (std::int64_t i = 0; i < data.back().size(); ++i) data.back()[i] = scale * static_cast<double>((i * 7) % 11 - 5);
    scale *= 0.9;
  }
  std::vector<const void*> pointers;
  for (const auto& d : data) pointers.push_back(d.data());
  const auto made = [&](const auto& callable, const dynamic::mesh& m, std::size_t choice) {
    dynamic::builder b(m);
    b.graph().allow_replication = true;  // rows may be split
    std::vector<value> in;
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      std::vector<std::string> sharding(shapes[k].size(), "?");
      const auto c = choice >> (2 * k) & 3U;
      if (c == 1 && !sharding.empty()) sharding.front() = "x";
      if (c == 2 && !sharding.empty()) sharding.back() = "y";
      if (c == 3 && sharding.size() > 1) sharding.front() = "y", sharding.back() = "x";
      in.push_back(b.input(dynamic::input<double>(shapes[k], sharding)));
    }
    auto results = callable(in);
    detail::for_each_leaf(results, [&](value v) { b.output(v); });
    return b.compile();
  };
  const dynamic::mesh one(std::vector<dynamic::mesh::axis>{{"x", 1}, {"y", 1}});
  std::vector<wanted_result> wanted;
  for (const auto& a : made(plain, one, 0).run(serial{}, pointers))
    wanted.push_back({std::vector<double>(a.template data<double>(), a.template data<double>() + a.bytes.size() / 8)});
  for (const auto& sizes : {std::vector<std::int64_t>{1, 1}, {2, 2}, {3, 1}, {2, 3}}) {
    const dynamic::mesh m({{"x", sizes[0]}, {"y", sizes[1]}});
    for (std::size_t choice = 0; choice < (std::size_t{1} << (2 * shapes.size())); ++choice) {
      const auto p = made(program, m, choice);
      for (const bool on_threads : {false, true}) {
        if (on_threads && choice % 7 != 3) continue;
        const auto got = on_threads ? p.run(threads{}, pointers) : p.run(simulated{}, pointers);
        REQUIRE(got.size() == wanted.size());
        for (std::size_t k = 0; k < got.size(); ++k) {
          INFO("mesh ", sizes[0], "x", sizes[1], ", choice ", choice, ", output ", k, on_threads ? ", threads" : "");
          CHECK(wanted[k].difference(got[k]) == "");
        }
      }
    }
  }
}

using values = std::vector<value>;

}  // namespace

TEST_CASE("fori_loop equals the unrolled program") {
  for (const std::int64_t trips : {0, 1, 2, 5}) {
    const auto body = [](const values& in) {
      return [in](value i, value h) { return tanh(einsum("ij,jk->ik", h, in[1])) + cast<double>(i) * 0.5; };
    };
    compare([&](const values& in) { return fori_loop(trips, body(in), in[0]); },
            [&](const values& in) { return std::get<0>(unrolled(trips, in[0], body(in), in[0])); }, {{5, 6}, {6, 6}});
  }
}

TEST_CASE("several carried values change places") {
  for (const std::int64_t trips : {0, 1, 4}) {
    const auto body = [](const values& in) {
      return [in](value, value a, value b, value c) { return std::tuple{b, a + c, einsum("ij,kj->ik", a, in[1]) * 0.25}; };
    };
    compare([&](const values& in) { return fori_loop(trips, body(in), in[0], in[1], in[0]); },
            [&](const values& in) { return unrolled(trips, in[0], body(in), in[0], in[1], in[0]); }, {{4, 4}, {4, 4}});
  }
}

TEST_CASE("loops in loops, sums of split dims, values from outside both") {
  const auto outer = [](const values& in, const auto& loop) {
    return [in, loop](value i, value h, value s) {
      const value w = in[1] * 0.5;
      const value inner = loop(
          3, [&](value j, value g) { return g * 0.5 + w + sum(g, {0}) * 0.125 + cast<double>(i * j); }, h);
      return std::tuple{inner - h, s + sum(inner * in[0])};
    };
  };
  const auto looped = [](std::int64_t n, const auto& body, const value& init) { return fori_loop(n, body, init); };
  const auto flat = [](std::int64_t n, const auto& body, const value& init) {
    return std::get<0>(unrolled(n, init, body, init));
  };
  compare(
      [&](const values& in) {
        const value w = exp(in[1]);  // used in the loop and after it
        const auto [h, s] = fori_loop(4, outer(in, looped), in[0] + w, sum(in[0]));
        return std::tuple{h + w, s, w};
      },
      [&](const values& in) {
        const value w = exp(in[1]);
        const auto [h, s] = unrolled(4, in[0], outer(in, flat), in[0] + w, sum(in[0]));
        return std::tuple{h + w, s, w};
      },
      {{5, 3}, {5, 3}});
}

TEST_CASE("scan goes over rows and stacks rows") {
  const auto body = [](const values& in) {
    return [in](value h, value x) {
      const value y = tanh(einsum("bd,de->be", h, in[2]) + x);
      return std::tuple{y, std::pair{y * 2.0, sum(y, {1})}};
    };
  };
  compare(
      [&](const values& in) {
        const auto [h, ys] = scan(body(in), in[0], in[1]);
        return std::tuple{h, ys.first, ys.second};
      },
      [&](const values& in) {  // rows by a mask, stacked by outer products
        value h = in[0];
        value ys;
        value zs;
        for (int t = 0; t < 4; ++t) {
          const value is_t = cast<double>(equal(iota<std::int64_t>(h, {4}, 0), t));
          const value x = einsum("t,tbd->bd", is_t, in[1]);
          auto [next, row] = body(in)(h, x);
          h = next;
          const value y = einsum("t,bd->tbd", is_t, row.first);
          const value z = einsum("t,b->tb", is_t, row.second);
          ys = t == 0 ? y : ys + y;
          zs = t == 0 ? z : zs + z;
        }
        return std::tuple{h, ys, zs};
      },
      {{5, 3}, {4, 5, 3}, {3, 3}});
}

TEST_CASE("cond takes one branch; collectives in branches") {
  for (const double limit : {-100.0, 100.0}) {
    const auto on_true = [](const values& in) { return [in](value a) { return einsum("ij,jk->ik", a, in[1]) + in[0]; }; };
    const auto on_false = [](const values& in) { return [in](value a) { return a * sum(in[1]) - in[0]; }; };
    compare(
        [&](const values& in) {
          const value a = in[0] * 2.0;
          const value r = cond(sum(a) > limit, on_true(in), on_false(in), a);
          const auto [same, other] = cond(
              sum(a) < limit,
              [](value x) {
                return std::tuple{x, x};
              },
              [](value x) {
                return std::tuple{x, x + 1.0};
              },
              a);
          return std::tuple{r + a, same, other};
        },
        [&](const values& in) {
          const value a = in[0] * 2.0;
          const value r = limit < 0 ? on_true(in)(a) : on_false(in)(a);
          return std::tuple{r + a, a, limit < 0 ? a + 1.0 : a + 0.0};
        },
        {{6, 6}, {6, 6}});
  }
}

TEST_CASE("a conditional in a loop in a conditional") {
  const auto step = [](const values& in) { return [in](value h) { return tanh(einsum("ij,jk->ik", h, in[1])); }; };
  compare(
      [&](const values& in) {
        return cond(
            sum(in[0]) < 1000.0,
            [&](value x) {
              return fori_loop(
                  5,
                  [&](value i, value h) {
                    return cond(
                        equal(i * 2, 4), step(in), [](value y) { return y + 0.25; }, h);
                  },
                  x);
            },
            [](value x) { return x; }, in[0]);
      },
      [&](const values& in) {
        value h = in[0];
        for (int i = 0; i < 5; ++i) h = i == 2 ? step(in)(h) : h + 0.25;
        return h;
      },
      {{5, 5}, {5, 5}});
}

TEST_CASE("a static loop has the plan and the result of the run-time path") {
  static constexpr auto program = [](auto x, auto w) {
    auto [h, s] = fori_loop(
        7,
        [&](value i, value a, value b) {
          return std::tuple{tanh(einsum<"ij,jk->ik">(a, w) + cast<double>(i)), b + sum(a)};
        },
        x, sum(x));
    return std::tuple{h, cond(
                             s > 0.0, [](value v) { return v * 2.0; }, [total = sum(h)](value v) { return v - total; }, s)};
  };
  using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
  using step = gspmd::compile<program, pod, input<double, shape<5, 6>, split<"x", _>>, input<double, shape<6, 6>, split<_, "y">>>;
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto p =
      dynamic::compile(program, m, dynamic::input<double>({5, 6}, {"x", ""}), dynamic::input<double>({6, 6}, {"", "y"}));
  CHECK(reference::difference(step::view, p.view()) == "");
  CHECK(step::traffic.bytes == p.traffic().bytes);
  const auto x = counted({5, 6});
  const auto w = counted({6, 6}, 0.1);
  const auto [h, s] = run<step>(threads{}, x, w);
  const auto got = p.run(simulated{}, x, w);
  for (std::int64_t i = 0; i < h.size(); ++i) CHECK(h[i] == doctest::Approx(got[0].data<double>()[i]));
  CHECK(s[0] == doctest::Approx(got[1].data<double>()[0]));
}

TEST_CASE("gradients through fori_loop, carried integers and loops in loops") {
  const auto body = [](const values& in, const auto& loop) {
    return [in, loop](value i, value h, value k) {
      const value g = tanh(einsum("ij,jk->ik", h, in[1])) + cast<double>(i + k) * 0.125;
      const value inner = loop(
          2, [&](value j, value y) { return sin(y * in[0]) + cast<double>(j) * g; }, g);
      return std::tuple{inner, k + i};
    };
  };
  const auto looped = [](std::int64_t n, const auto& f, const value& init) { return fori_loop(n, f, init); };
  const auto flat = [](std::int64_t n, const auto& f, const value& init) { return std::get<0>(unrolled(n, init, f, init)); };
  for (const std::int64_t trips : {0, 1, 3}) {
    compare(
        [&](const values& in) {
          const auto [h, k] = fori_loop(trips, body(in, looped), in[0] * 2.0, constant<std::int64_t>(in[0], {}, 3));
          const value loss = sum(h * h) + sum(in[0] * h);
          return std::tuple{loss, grad(loss, std::array{in[0], in[1]})};
        },
        [&](const values& in) {
          const auto [h, k] = unrolled(trips, in[0], body(in, flat), in[0] * 2.0, constant<std::int64_t>(in[0], {}, 3));
          const value loss = sum(h * h) + sum(in[0] * h);
          return std::tuple{loss, grad(loss, std::array{in[0], in[1]})};
        },
        {{4, 5}, {5, 5}});
  }
}

TEST_CASE("gradients through scan: what is carried, rows, values from outside; and those of gradients") {
  const auto body = [](const values& in) {
    return [in](value h, value x) {
      const value y = tanh(einsum("bd,de->be", h, in[2]) + x);
      return std::tuple{y, y * x};
    };
  };
  const auto losses = [](value loss, const values& in) {
    const auto g = grad(loss, std::array{in[0], in[1], in[2]});
    const value again = sum(g[0] * g[0]) + sum(g[1]) + sum(g[2] * g[2]);
    return std::tuple{loss, g, grad(again, in[2])};
  };
  compare(
      [&](const values& in) {
        const auto [h, ys] = scan(body(in), in[0], in[1]);
        return losses(sum(h * h) + sum(ys * ys), in);
      },
      [&](const values& in) {
        value h = in[0];
        value loss;
        for (int t = 0; t < 3; ++t) {
          const value is_t = cast<double>(equal(iota<std::int64_t>(h, {3}, 0), t));
          auto [next, y] = body(in)(h, einsum("t,tbd->bd", is_t, in[1]));
          h = next;
          loss = t == 0 ? sum(y * y) : loss + sum(y * y);
        }
        return losses(loss + sum(h * h), in);
      },
      {{4, 3}, {3, 4, 3}, {3, 3}});
}

TEST_CASE("gradients through cond, alone and in a loop") {
  const auto on_true = [](const values& in) { return [in](value h) { return tanh(einsum("ij,jk->ik", h, in[1])); }; };
  const auto on_false = [](const values& in) { return [in](value h) { return h * 0.5 + in[0]; }; };
  compare(
      [&](const values& in) {
        const value h = fori_loop(
            4, [&](value i, value a) { return cond(equal(i, 1), on_true(in), on_false(in), a); }, in[0]);
        const value r = cond(sum(h) > 1000.0, on_false(in), on_true(in), h);
        const value loss = sum(r * r);
        return grad(loss, std::array{in[0], in[1]});
      },
      [&](const values& in) {
        value h = in[0];
        for (int i = 0; i < 4; ++i) h = i == 1 ? on_true(in)(h) : on_false(in)(h);
        const value r = on_true(in)(h);
        const value loss = sum(r * r);
        return grad(loss, std::array{in[0], in[1]});
      },
      {{4, 4}, {4, 4}});
}

TEST_CASE("a training loop: the gradient is taken in the body") {
  const auto body = [](const values& in) {
    return [in](value, value w) {
      const value d = einsum("bi,io->bo", in[0], w) - in[1];
      return w - grad(mean(d * d), w) * 0.5;
    };
  };
  compare([&](const values& in) { return fori_loop(6, body(in), in[2]); },
          [&](const values& in) { return std::get<0>(unrolled(6, in[0], body(in), in[2])); }, {{6, 3}, {6, 2}, {3, 2}});
}

TEST_CASE("what follows a carried value is not made in its memory while that is read") {
  compare(
      [](const values& in) {
        return fori_loop(
            3,
            [&](value, value a, value b, value c, value d) {
              return std::tuple{einsum("ij,jk->ik", a, in[1]), transpose(b, {1, 0}), reshape(sum(c, {1}), {5, 1}) + c,
                                d * 0.5 + transpose(d, {1, 0})};
            },
            in[0], in[0], in[0], in[0]);
      },
      [](const values& in) {
        return unrolled(
            3, in[0],
            [&](value, value a, value b, value c, value d) {
              return std::tuple{einsum("ij,jk->ik", a, in[1]), transpose(b, {1, 0}), reshape(sum(c, {1}), {5, 1}) + c,
                                d * 0.5 + transpose(d, {1, 0})};
            },
            in[0], in[0], in[0], in[0]);
      },
      {{5, 5}, {5, 5}});
}

TEST_CASE("collectives in loops: brought out where the value is from outside, counted by trips, summed once") {
  const dynamic::mesh m({{"x", 4}});
  const auto outside = dynamic::compile(
      [](auto a, auto w) {
        return fori_loop(
            10, [w](value, value h) { return tanh(einsum("ij,jk->ik", h, w)); }, a);
      },
      m, dynamic::input<float>({8, 8}, {"x", ""}), dynamic::input<float>({8, 8}, {"", "x"}));
  CHECK(outside.collectives() == std::vector<collective>{all_gather<"x">});
  CHECK(outside.traffic().bytes == 3 * 2 * 8 * 4);
  const auto inside = dynamic::compile(
      [](auto a, auto w) {
        return fori_loop(
            10, [w](value, value h) { return tanh(einsum("ij,jk->ik", h, w)); }, a);
      },
      m, dynamic::input<float>({8, 8}, {"", "x"}), dynamic::input<float>({8, 8}, {"x", ""}));
  // w is gathered once; each time h is brought to the rows and the result back, where a reduce_scatter would send 48
  // numbers
  CHECK(inside.traffic().bytes == 3 * 2 * 8 * 4 + 10 * 2 * 12 * 4);
  const auto summed = dynamic::compile(
      [](auto a) {
        return fori_loop(
            10, [a](value i, value s) { return s + sum(a * cast<float>(i)); }, constant(a, {}, 0.0F));
      },
      m, dynamic::input<float>({8}, {"x"}));
  CHECK(summed.collectives() == std::vector<collective>{all_reduce<"x">});
  CHECK(summed.traffic().bytes == 6);
  const auto branches = dynamic::compile(
      [](auto a, auto p) {
        return cond(
            sum(p) > 0.0F, [](value v) { return v * sum(v) + sum(tanh(v)); }, [](value v) { return v * sum(v); }, a);
      },
      m, dynamic::input<float>({8}, {"x"}), dynamic::input<float>({1}, {""}));
  CHECK(branches.traffic().bytes == 12);  // two sums, not one
}

TEST_CASE("what is brought before a loop is sent once, what is sent in it once a trip: the plan weighs both") {
  const dynamic::mesh m({{"x", 4}});
  for (const int trips : {1, 100}) {
    const auto p = dynamic::compile(
        [trips](auto a, auto w) {
          return fori_loop(
              trips, [w](value, value h) { return replicate(tanh(einsum("ij,jk->ik", replicate(h), w))); }, a);
        },
        m, dynamic::input<float>({4, 64}, {"", ""}), dynamic::input<float>({64, 64}, {"x", ""}));
    const auto found = p.collectives();
    CHECK(p.traffic().bytes == (trips == 1 ? 1536 : 3 * 1024 * 4));
    CHECK(found.size() == 1);
  }
}

TEST_CASE(
    "means of neighbours that all trips read are computed in the body where that reads less, and before the loop elsewhere") {
  const dynamic::mesh m({{"x", 2}, {"y", 2}});
  const auto step = [](value u, value k) {
    value next = u;
    for (int d = 0; d < 2; ++d)
      for (const int by : {-1, 1}) next = next + 0.125 * (k + shift(k, by, along(d))) * (shift(u, by, along(d)) - u);
    return next;
  };
  const auto compiled = [&](auto body, std::int64_t rows, std::int64_t columns) {
    const auto in = dynamic::input<double>({rows, columns}, {"x", "y"});
    return dynamic::compile(
        [&](value u, value k) {
          return fori_loop(
              3, [&](value, value x) { return body(x, k); }, u);
        },
        m, in, in);
  };
  const auto large = compiled(step, 1024, 512), small = compiled(step, 64, 64);
  CHECK(large.peak_bytes_per_device() < 5 * 1024 * 512 * 8 / 4);  // not four means as well
  CHECK(large.traffic().messages == small.traffic().messages);    // the margins of k once, before the loop
  array<double> u({1024, 512}), k({1024, 512});
  for (std::int64_t i = 0; i < u.size(); ++i) {
    u[i] = 0.25 * static_cast<double>((i * 7) % 11 - 5);
    k[i] = 0.125 * static_cast<double>((i * 5) % 7);
  }
  const auto plain = dynamic::compile(
      [&](value x, value c) {
        for (int trip = 0; trip < 3; ++trip) x = step(x, c);
        return x;
      },
      dynamic::mesh({{"x", 1}}), dynamic::input<double>({1024, 512}), dynamic::input<double>({1024, 512}));
  CHECK(large.run(simulated{}, u, k)[0].bytes == plain.run(serial{}, u, k)[0].bytes);

  // A product reads the mean: made once.
  const auto multiplied = compiled(
      [](value x, value c) {
        value next = x;
        for (int d = 0; d < 2; ++d)
          for (const int by : {-1, 1}) next = next + 0.001 * einsum("ij,kj->ik", c + shift(c, by, along(d)), x);
        return next;
      },
      1024, 1024);
  CHECK(multiplied.traffic().in(collective_kind::collective_permute).messages <= 8);
}

TEST_CASE("mistakes in loops and conditionals") {
  const dynamic::mesh m({{"x", 2}});
  const auto error_of = [&](auto callable) {
    try {
      static_cast<void>(dynamic::compile(callable, m, dynamic::input<float>({4, 3}, {"x", ""})));
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const auto says = [&](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  says(error_of([](auto x) {
         return fori_loop(
             -1, [](value, value h) { return h; }, x);
       }),
       "runs -1 times");
  says(error_of([](auto x) {
         return fori_loop(
             2, [](value, value h) { return sum(h, {1}); }, x);
       }),
       "fori_loop at loops.cpp:");
  says(error_of([](auto x) {
         return fori_loop(
             2, [](value, value h) { return sum(h, {1}); }, x);
       }),
       "result 0 of the body is f32[4] and the carried value is f32[4,3]");
  says(error_of([](auto x) {
         value kept;
         const value h = fori_loop(
             2, [&](value, value a) { return kept = a * 2.0F; }, x);
         return h + kept;
       }),
       "uses a value of the body of a loop or conditional outside of the body");
  says(error_of([](auto x) {
         value kept;
         const value h = fori_loop(
             2, [&](value, value a) { return kept = a * 2.0F; }, x);
         return fori_loop(
             2, [&](value, value) { return kept; }, h);
       }),
       "no value of this program that the body may use");
  says(error_of([](auto x) {
         return cond(
             x > 0.0F, [](value a) { return a; }, [](value a) { return a; }, x);
       }),
       "it must be one bool, of rank 0");
  says(error_of([](auto x) {
         return cond(
             sum(x) > 0.0F, [](value a) { return a; }, [](value a) { return sum(a); }, x);
       }),
       "result 0 of the body is f32[] and that of the other body is f32[4,3]");
  says(error_of([](auto x) {
         return scan([](value h, value r) { return std::tuple{h + r, h}; }, x, sum(x));
       }),
       "iterates over the rows of []");
}
