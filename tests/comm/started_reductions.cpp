// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// Reductions that a manual region starts and finishes give the results of blocking reductions. Buffers of a started
// reduction are not touched. Independent work runs meanwhile.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/transform/grad.hpp>

#include "support/error_of.hpp"
#include "support/sanitized.hpp"
#include "support/started_reductions.hpp"

using namespace gspmd;
using caught::error_of;

namespace started_programs {

namespace kernels = gspmd::detail::kernels;

template <class Check>
int wrong_on_threads(const detail::mesh_shape& mesh, Check check) {
  std::atomic<int> wrong{0};
  launch(threads{}, static_cast<int>(mesh.device_count()), [&](auto& comm) { wrong += check(comm); });
  return wrong;
}

TEST_CASE("started reductions on threads: all shardings, element types and monoids; several at once") {
  using namespace oracle;
  for (const auto& mesh : {mesh_of({2}), mesh_of({3}), mesh_of({2, 2}), mesh_of({1, 2}), mesh_of({1})})
    CHECK(wrong_on_threads(mesh, [&](auto& comm) {
            by_starting<threads_communicator> started{comm};
            int wrong = wrong_in_all_monoids<float>(started, mesh) + wrong_in_all_monoids<std::int64_t>(started, mesh) +
                        wrong_in_all_monoids<bool>(started, mesh) + wrong_in_all_monoids<bf16>(started, mesh) +
                        wrong_in_all_monoids<std::uint8_t>(started, mesh);
            for (const auto& shape : {shape_of({0}), shape_of({1}), shape_of({7}), shape_of({5, 4}), shape_of({64, 9})})
              wrong += wrong_in_all_pairs<double>(started, mesh, shape,
                                                  (mesh.axis_count() == 1 ? 1 : 5) * (reference::is_sanitized ? 3 : 1));
            return wrong;
          }) == 0);
  for (unsigned seed = 0; seed < (reference::is_sanitized ? 8U : 25U); ++seed)
    for (const auto& mesh : {mesh_of({2}), mesh_of({2, 2}), mesh_of({3, 2})}) {
      CAPTURE(seed);
      CHECK(wrong_on_threads(mesh, [&](auto& comm) { return wrong_of_several<double>(comm, mesh, seed, {nullptr, 0}); }) == 0);
    }
}

TEST_CASE("a device that starts no reduction, or another one, is named") {
  using namespace oracle;
  const auto mesh = mesh_of({3});
  const auto sum = reduction_between(shape_of({5000}), {}, {}, 1, monoid::add),
             most = reduction_between(shape_of({5000}), {}, {}, 1, monoid::max);
  for (const bool comes : {false, true}) {
    const auto text = error_of([&] {
      launch(threads{}, 3, [&](auto& comm) {
        std::vector<float> v(5000);
        const float* in = v.data();
        float* out = v.data();
        if (comm.device(0) == 1 && !comes) return;
        const auto& r = comm.device(0) == 1 ? most : sum;
        comm.start(mesh, span<const reduction>(&r, 1), &in, &out);
        comm.finish(mesh, span<const reduction>(&r, 1), &in, &out);
      });
    });
    CAPTURE(text);
    // The rank that arrives second reports the error. It may be the rank that adds, or the rank that takes the maximum.
    for (const char* words :
         {comes ? "in all_reduce by add of f32 [5000]" : "waits in a collective for rank 1, which has finished",
          comes ? "rank 1 in all_reduce by max of f32 [5000]" : "rank 1"})
      CHECK(text.find(words) != std::string::npos);
  }
}

/// Returns the number of reductions of a plan that are in progress during a computation. Checks that before a reduction
/// finishes, nothing writes its operand or result or reads its result. Also checks that each reduction finishes.
template <class View>
int under_way(const View& view) {
  int count = 0;
  const auto shard = [&](const detail::table_range& range, int k) -> const auto& {
    return view.values[static_cast<std::size_t>(view.slots[static_cast<std::size_t>(range.begin + k)])];
  };
  for (int i = 0; i < static_cast<int>(view.steps.size()); ++i) {
    const auto& s = view.steps[static_cast<std::size_t>(i)];
    if (!detail::is<kernels::start_combine>(s)) continue;
    REQUIRE(s.target > i);
    REQUIRE(detail::is<kernels::finish_combine>(view.steps[static_cast<std::size_t>(s.target)]));
    bool computes = false;
    for (int k = i + 1; k < s.target; ++k) {
      const auto& next = view.steps[static_cast<std::size_t>(k)];
      computes = computes || detail::facts_of(next).work == detail::step_work::computes;
      if (detail::facts_of(next).work == detail::step_work::ends_moving) continue;
      for (int r = 0; r < next.results.count; ++r) {
        CHECK(!detail::share_memory(shard(next.results, r), shard(s.operands, 0)));
        CHECK(!detail::share_memory(shard(next.results, r), shard(s.results, 0)));
      }
      for (int o = 0; o < next.operands.count; ++o) CHECK(!detail::share_memory(shard(next.operands, o), shard(s.results, 0)));
    }
    CHECK(computes);
    ++count;
  }
  return count;
}

struct drawn_op {
  bool scatters;
  int axes;  // bits: x, y
  monoid kind;
  int finished_after;  // number of operators in between
};
struct drawn {
  int x, y, rows, columns;  // of a shard
  std::vector<drawn_op> ops;
};
drawn draw(unsigned seed, bool only_sums) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr std::pair<int, int> meshes[] = {{2, 1}, {3, 1}, {2, 2}, {1, 3}, {2, 3}, {1, 1}, {5, 1}};
  const auto [x, y] = meshes[below(7)];
  drawn d{x, y, 1 + below(4), (1 + below(2)) * x * y * (below(3) == 0 ? 40 : 1), {}};
  constexpr monoid kinds[] = {monoid::add, monoid::max, monoid::min};
  const int count = 1 + below(4);
  for (int k = 0; k < count; ++k)
    d.ops.push_back({below(2) == 0, 1 + below(3), only_sums ? monoid::add : kinds[below(3)], 1 + below(3)});
  return d;
}
/// Operator k reduces k + 2 times the device's value. Meanwhile it computes products, which are added too.
value region(const drawn& d, bool starts, value v) {
  struct pending {
    drawn_op op;
    std::optional<local::started> under_way;
    value at_once;
    int left;
  };
  std::list<pending> all;
  value sum_of_all = v;
  const auto with_axes = [](int axes, auto f) {
    return axes == 1 ? f.template operator()<"x">() : axes == 2 ? f.template operator()<"y">() : f.template operator()<"x,y">();
  };
  const auto reduced = [&](const drawn_op& op, value of) {
    return with_axes(op.axes, [&]<dim_spec Axes>() {
      return op.scatters ? local::reduce_scatter<Axes>(of, 1, op.kind) : local::all_reduce<Axes, state::replica>(of, op.kind);
    });
  };
  const auto take = [&](pending& p) {
    const value got = p.under_way ? local::finish(*std::move(p.under_way)) : p.at_once;
    const value same = with_axes(p.op.axes, [&]<dim_spec Axes>() {
      return p.op.scatters ? local::to_varying<Axes, state::varying>(got) : local::to_varying<Axes>(got);
    });
    const int times = p.op.scatters ? static_cast<int>(v.shape()[1] / got.shape()[1]) : 1;
    std::vector<value> copies(static_cast<std::size_t>(times), same);
    sum_of_all = sum_of_all + (times == 1 ? same : concatenate(copies, 1));
  };
  for (std::size_t k = 0; k < d.ops.size(); ++k) {
    const value of = v * static_cast<double>(k + 2);
    pending next{d.ops[k], {}, {}, d.ops[k].finished_after};
    if (starts) next.under_way.emplace(local::start(reduced(d.ops[k], of)));
    else next.at_once = reduced(d.ops[k], of);
    all.push_back(std::move(next));
    sum_of_all = sum_of_all + einsum("ac,cb->ab", einsum("ab,cb->ac", v, v), v);
    for (auto p = all.begin(); p != all.end();) {
      if (--p->left > 0) {
        ++p;
        continue;
      }
      take(*p);
      p = all.erase(p);
    }
  }
  for (auto& p : all) take(p);
  return sum_of_all;
}
template <class T>
T number(int n) {
  if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(n);
  else return static_cast<float>(n);
}
/// Computes the result by loops over devices and elements.
template <class T>
std::vector<T> naive(const drawn& d, const std::vector<T>& in) {
  const int devices = d.x * d.y;
  const auto n = static_cast<std::size_t>(d.columns), r = static_cast<std::size_t>(d.rows), shard = n * r;
  std::vector<T> out = in;
  for (int device = 0; device < devices; ++device) {
    const T* const v = in.data() + static_cast<std::size_t>(device) * shard;
    T* const to = out.data() + static_cast<std::size_t>(device) * shard;
    for (std::size_t k = 0; k < d.ops.size(); ++k) {
      for (std::size_t a = 0; a < r; ++a)
        for (std::size_t c = 0; c < r; ++c) {
          T product{};
          for (std::size_t b = 0; b < n; ++b) product += v[a * n + b] * v[c * n + b];
          for (std::size_t b = 0; b < n; ++b) to[a * n + b] += product * v[c * n + b];
        }
      std::vector<int> members;
      for (int other = 0; other < devices; ++other)
        if (((d.ops[k].axes & 1) != 0 || other / d.y == device / d.y) &&
            ((d.ops[k].axes & 2) != 0 || other % d.y == device % d.y))
          members.push_back(other);
      const auto me = static_cast<std::size_t>(std::find(members.begin(), members.end(), device) - members.begin());
      const auto part = d.ops[k].scatters ? n / members.size() : n;
      for (std::size_t a = 0; a < r; ++a)
        for (std::size_t b = 0; b < n; ++b) {
          const auto column = d.ops[k].scatters ? me * part + b % part : b;
          const auto of = [&](int j) {
            return in[static_cast<std::size_t>(j) * shard + a * n + column] * number<T>(static_cast<int>(k + 2));
          };
          T all = of(members[0]);
          for (std::size_t j = 1; j < members.size(); ++j) {
            const T next = of(members[j]);
            if constexpr (std::is_arithmetic_v<T>) {
              if (d.ops[k].kind == monoid::max) all = std::max(all, next);
              else if (d.ops[k].kind == monoid::min) all = std::min(all, next);
              else all += next;
            } else {
              all += next;
            }
          }
          to[a * n + b] += all;
        }
    }
  }
  return out;
}
template <class T>
int try_random(unsigned seed) {
  const drawn d = draw(seed, !std::is_arithmetic_v<T>);
  CAPTURE(seed);
  const auto compiled = [&](bool starts) {
    return dynamic::compile(
        [&](value x) {
          return manual<"x", "y">([&](value v) { return region(d, starts, v); }, takes<split<"x,y", _>>{},
                                  gives<split<"x,y", _>>{})(x);
        },
        dynamic::mesh({{"x", d.x}, {"y", d.y}}), dynamic::input<T>({d.x * d.y * d.rows, d.columns}));
  };
  std::vector<T> in(static_cast<std::size_t>(d.x * d.y * d.rows * d.columns));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = number<T>(static_cast<int>((i * 7 + seed) % 5) - 2);  // sums are exact
  const auto expected = naive(d, in);
  const auto starting = compiled(true), blocking = compiled(false);
  CHECK(starting.traffic().bytes == blocking.traffic().bytes);
  CHECK(starting.traffic().messages == blocking.traffic().messages);
  const auto check = [&](const auto& program, const auto& backend) {
    const auto found = program.run(backend, in);
    int wrong = 0;
    for (std::size_t i = 0; i < in.size(); ++i) wrong += found[0].template data<T>()[i] == expected[i] ? 0 : 1;
    CHECK(wrong == 0);
  };
  check(blocking, simulated{});
  check(starting, simulated{});
  check(starting, threads{});
  if (d.x * d.y == 1) check(starting, serial{});
  CHECK(under_way(blocking.view()) == 0);
  return under_way(starting.view());
}
TEST_CASE("random regions that start reductions give what loops over elements give") {
  int found = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    found += try_random<double>(seed);
    if (seed % 3 == 0) found += try_random<float>(1000 + seed);
    if (seed % 3 == 1) found += try_random<std::int32_t>(2000 + seed);
    if (seed % 3 == 2) found += try_random<std::complex<float>>(3000 + seed);
  }
  CHECK(found > 200);
}

/// A training step of three layers on the rows of this device. The sum of each weight's gradient is started when its
/// partial values exist, and finished when the weight is updated.
template <bool Starts>
constexpr auto backward = [](auto x, auto t, auto w1, auto w2, auto w3) {
  const auto sum_of = [](value terms) {
    const value all = local::all_reduce<"data", state::replica>(terms);
    if constexpr (Starts) return local::start(all);
    else return all;
  };
  const auto of = [](auto it) {
    if constexpr (Starts) return local::finish(std::move(it));
    else return it;
  };
  auto h1 = tanh(einsum<"bd,df->bf">(x, w1));
  auto h2 = tanh(einsum<"bd,df->bf">(h1, w2));
  auto d3 = einsum<"bd,df->bf">(h2, w3) - t;
  auto g3 = sum_of(einsum<"bd,bf->df">(h2, d3));
  auto d2 = einsum<"bf,df->bd">(d3, w3) * (1 - h2 * h2);
  auto g2 = sum_of(einsum<"bd,bf->df">(h1, d2));
  auto d1 = einsum<"bf,df->bd">(d2, w2) * (1 - h1 * h1);
  auto g1 = sum_of(einsum<"bd,bf->df">(x, d1));
  auto n3 = w3 - 0.1 * of(std::move(g3));
  auto n2 = w2 - 0.1 * of(std::move(g2));
  auto n1 = w1 - 0.1 * of(std::move(g1));
  return std::tuple{n1, n2, n3};
};
/// Each device has a part of the rows of each weight, and updates it.
constexpr auto backward_in_parts = [](auto x, auto t, auto w1, auto w2, auto w3) {
  const auto whole = [](value w) { return local::all_gather<"data", state::replica>(w, 0); };
  const auto part_of_sum = [](value terms) { return local::start(local::reduce_scatter<"data">(terms, 0)); };
  auto v1 = whole(w1), v2 = whole(w2), v3 = whole(w3);
  auto h1 = tanh(einsum<"bd,df->bf">(x, v1));
  auto h2 = tanh(einsum<"bd,df->bf">(h1, v2));
  auto d3 = einsum<"bd,df->bf">(h2, v3) - t;
  auto g3 = part_of_sum(einsum<"bd,bf->df">(h2, d3));
  auto d2 = einsum<"bf,df->bd">(d3, v3) * (1 - h2 * h2);
  auto g2 = part_of_sum(einsum<"bd,bf->df">(h1, d2));
  auto d1 = einsum<"bf,df->bd">(d2, v2) * (1 - h1 * h1);
  auto g1 = part_of_sum(einsum<"bd,bf->df">(x, d1));
  auto n3 = w3 - 0.1 * local::finish(std::move(g3));
  auto n2 = w2 - 0.1 * local::finish(std::move(g2));
  auto n1 = w1 - 0.1 * local::finish(std::move(g1));
  return std::tuple{n1, n2, n3};
};
using batch = held<split<"data", _>>;
using weight = held<replica<"data">>;
template <bool Starts>
constexpr auto by_hand = [](auto x, auto t, auto w1, auto w2, auto w3) {
  return manual<"data">(backward<Starts>, takes<batch, batch, weight, weight, weight>{}, gives<weight, weight, weight>{})(
      x, t, w1, w2, w3);
};
constexpr auto in_parts = [](auto x, auto t, auto w1, auto w2, auto w3) {
  return manual<"data">(backward_in_parts, takes<batch, batch, batch, batch, batch>{}, gives<batch, batch, batch>{})(x, t, w1, w2,
                                                                                                                     w3);
};
constexpr auto automatic = [](auto x, auto t, auto w1, auto w2, auto w3) {
  auto y = einsum<"bd,df->bf">(tanh(einsum<"bd,df->bf">(tanh(einsum<"bd,df->bf">(x, w1)), w2)), w3);
  auto g = grad(0.5 * sum((y - t) * (y - t)), std::tuple{w1, w2, w3});
  return std::tuple{w1 - 0.1 * std::get<0>(g), w2 - 0.1 * std::get<1>(g), w3 - 0.1 * std::get<2>(g)};
};
std::vector<double> some(std::size_t n, int seed) {
  std::vector<double> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<double>((static_cast<int>(i) * 5 + seed) % 9 - 4) / 8;
  return v;
}
bool same(const auto& a, const auto& b, double epsilon) {
  bool all = true;
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t i = 0; i < a[k].bytes.size() / sizeof(double); ++i) {
      const double x = a[k].template data<double>()[i], y = b[k].template data<double>()[i];
      all = all && (epsilon == 0 ? x == y : x == doctest::Approx(y).epsilon(epsilon));
    }
  return all;
}

TEST_CASE("a backward pass that starts the reduction of each weight's gradient, planned at run time") {
  const auto x = some(12 * 6, 1), t = some(12 * 6, 2), w1 = some(6 * 18, 3), w2 = some(18 * 12, 4), w3 = some(12 * 6, 5);
  for (const int devices : {1, 2, 3}) {
    const auto compiled = [&](auto f, bool parts) {
      const auto weight_of = [&](std::int64_t rows, std::int64_t columns) {
        return parts ? dynamic::input<double>({rows, columns}, {"data", ""}) : dynamic::input<double>({rows, columns});
      };
      return dynamic::compile(f, dynamic::mesh({{"data", devices}}), dynamic::input<double>({12, 6}, {"data", ""}),
                              dynamic::input<double>({12, 6}, {"data", ""}), weight_of(6, 18), weight_of(18, 12),
                              weight_of(12, 6));
    };
    const auto run = [&](const auto& program, const auto& backend) { return program.run(backend, x, t, w1, w2, w3); };
    const auto starting = compiled(by_hand<true>, false), blocking = compiled(by_hand<false>, false);
    CHECK(under_way(starting.view()) == (devices == 1 ? 0 : 2));  // the sum of the first layer has nothing to overlap with
    CHECK(same(run(starting, threads{}), run(blocking, threads{}), 0));
    CHECK(same(run(starting, simulated{}), run(blocking, simulated{}), 0));
    CHECK(same(run(starting, threads{}), run(compiled(automatic, false), threads{}), 1e-12));
    const auto parts = compiled(in_parts, true);
    CHECK(under_way(parts.view()) == (devices == 1 ? 0 : 2));
    CHECK(same(run(parts, threads{}), run(starting, threads{}), 1e-12));
  }
}

using pair = mesh<axis<"data", 2>>;
template <auto& F>
using step = compile<F, pair, input<double, shape<12, 6>, split<"data", _>>, input<double, shape<12, 6>, split<"data", _>>,
                     input<double, shape<6, 18>>, input<double, shape<18, 12>>, input<double, shape<12, 6>>>;

TEST_CASE("a backward pass that starts the reduction of each weight's gradient, planned when compiling") {
  array<double> x({12, 6}), t({12, 6}), w1({6, 18}), w2({18, 12}), w3({12, 6});
  int seed = 0;
  for (auto* a : {&x, &t, &w1, &w2, &w3}) {
    const auto values = some(static_cast<std::size_t>(a->size()), ++seed);
    std::copy(values.begin(), values.end(), a->begin());
  }
  CHECK(under_way(step<by_hand<true>>::view) == 2);
  const auto steps =
      step<by_hand<true>>::view.steps;  // the sum of the last layer is in progress while the other gradients are computed
  const auto first =
      std::find_if(steps.begin(), steps.end(), [](const auto& s) { return detail::is<kernels::start_combine>(s); });
  CHECK(std::count_if(first, steps.begin() + first->target, [](const auto& s) { return detail::is<kernels::contract>(s); }) == 4);
  CHECK(step<by_hand<true>>::traffic.bytes == step<by_hand<false>>::traffic.bytes);
  const auto a = run<step<by_hand<true>>>(threads{}, x, t, w1, w2, w3),
             b = run<step<by_hand<false>>>(threads{}, x, t, w1, w2, w3), c = run<step<automatic>>(simulated{}, x, t, w1, w2, w3);
  const auto check = [](const auto& left, const auto& right, const auto& other) {
    for (std::int64_t i = 0; i < left.size(); ++i) {
      CHECK(left[i] == right[i]);
      CHECK(left[i] == doctest::Approx(other[i]).epsilon(1e-12));
    }
  };
  check(std::get<0>(a), std::get<0>(b), std::get<0>(c));
  check(std::get<1>(a), std::get<1>(b), std::get<1>(c));
  check(std::get<2>(a), std::get<2>(b), std::get<2>(c));
}

TEST_CASE("a reduction that a trip of a loop starts is finished in that trip") {
  const auto loop = [](bool starts, bool is_checked) {
    const dynamic::mesh m({{"x", 2}});
    return dynamic::compile(
        [=](value x) {
          return manual<"x">(
              [=](value v) {
                return fori_loop(
                    3,
                    [=](value, value held) {
                      const value terms = held * 0.5;
                      const auto added = [&](auto of) {
                        const value product = einsum("ac,cb->ab", einsum("ab,cb->ac", held, held), held);
                        return product + local::to_varying<"x">(of());
                      };
                      const value all = local::all_reduce<"x", state::replica>(terms);
                      if (!starts) return added([&] { return all; });
                      auto it = local::start(all);
                      return added([&] { return local::finish(std::move(it)); });
                    },
                    v);
              },
              takes<split<"x", _>>{}, gives<split<"x", _>>{})(x);
        },
        is_checked ? m.with({.checked = true}) : m, dynamic::input<double>({6, 4}));
  };
  const auto in = some(24, 7);
  const auto starting = loop(true, false), blocking = loop(false, false);
  CHECK(under_way(starting.view()) == 1);
  CHECK(under_way(loop(true, true).view()) == 0);  // a checked program compares each result directly after its operator
  const auto expected = blocking.run(threads{}, in);
  for (const auto& found : {starting.run(threads{}, in), starting.run(simulated{}, in), loop(true, true).run(threads{}, in)})
    for (std::size_t i = 0; i < 24; ++i) CHECK(found[0].data<double>()[i] == expected[0].data<double>()[i]);
  const auto mistake = error_of([] {
    static_cast<void>(dynamic::compile(
        [](value x) {
          return manual<"x">(
              [](value v) {
                std::optional<local::started> it;
                const value end = fori_loop(
                    2,
                    [&](value, value held) {
                      if (it) return local::finish(*std::move(it)) + held;
                      it.emplace(local::start(local::reduce_scatter<"x">(held, 1)));
                      return held * 2.0;
                    },
                    v);
                return end + concatenate({local::finish(*std::move(it)), v}, 1);
              },
              takes<split<"x", _>>{}, gives<split<"x", _>>{})(x);
        },
        dynamic::mesh({{"x", 2}}), dynamic::input<double>({6, 4})));
  });
  CHECK(mistake.find("uses a value of the body of a loop or conditional outside of the body; return the value from the body") !=
        std::string::npos);
}

TEST_CASE("a started reduction that is not finished, or twice, is refused") {
  const auto refused = [](auto body) {
    return error_of([&] {
      static_cast<void>(
          dynamic::compile([&](value x) { return manual<"x">(body, takes<split<"x", _>>{}, gives<split<"x", _>>{})(x); },
                           dynamic::mesh({{"x", 2}}), dynamic::input<double>({6, 4})));
    });
  };
  CHECK(refused([](value v) {
          const auto it = local::start(local::reduce_scatter<"x">(v, 1));
          return v;
        }).find("the collective that is started here is never finished; write finish(std::move(it))") != std::string::npos);
  CHECK(refused([](value v) {
          auto it = local::start(local::all_reduce<"x", state::replica>(v));
          const value first = local::finish(std::move(it));
          return v * local::to_varying<"x">(first + local::finish(std::move(it)));
        }).find("it is finished already; start another one") != std::string::npos);
}

}  // namespace started_programs
