// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
// Counts, bytes, messages and flops of a plan: as constants of a step and as values of a program, compared with closed
// forms.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::error_of;

constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return einsum<"bf,fd->bd">(h, w2);
};
// 10 rows over 4 and 6 columns of w1 over 3: 3 and 2 per device. `model` ends with an all_reduce of [3,5] floats.
using pod = mesh<axis<"data", 4>, axis<"model", 3>>;
using step = compile<mlp, pod, input<float, shape<10, 5>, split<"data", _>>, input<float, shape<5, 6>, split<_, "model">>,
                     input<float, shape<6, 5>, split<"model", _>>>;
static_assert(step::collectives == collectives{all_reduce<"model">});
static_assert(step::traffic.collectives == 1 && step::traffic.over("model").collectives == 1 &&
              step::traffic.over("data").collectives == 0 && step::traffic.in(collective_kind::all_reduce).collectives == 1 &&
              step::traffic.in(collective_kind::all_gather).collectives == 0);
static_assert(step::traffic.in(collective_kind::all_reduce).bytes == 80 &&
              step::traffic.in(collective_kind::all_gather).bytes == 0);
static_assert(step::traffic.messages == 4 && step::traffic.over("model").messages == 4 &&
              step::traffic.over("data").messages == 0 && step::traffic.in(collective_kind::all_reduce).messages == 4 &&
              step::traffic.in(collective_kind::all_to_all).messages == 0);
static_assert(is_within_budget<step, max_messages<4, over<"model">, in_kind<collective_kind::all_reduce>>,
                               max_bytes<0, over<"model">, in_kind<collective_kind::all_gather>>> &&
              !is_within_budget<step, max_messages<3, over<"model">, in_kind<collective_kind::all_reduce>>>);
// two products of 3*5*2 multiplications and additions, and relu of [3,2]
static_assert(step::flops_per_device == 2 * 2 * 3 * 5 * 2 + 3 * 2);
static_assert(is_within_budget<step, max_flops<126>> && !is_within_budget<step, max_flops<125>>);
static_assert(
    is_within_budget<step, max_messages<4>, max_messages<4, over<"model">>, max_messages<0, over<"data">>,
                     max_messages<4, in_kind<collective_kind::all_reduce>>, max_bytes<80, in_kind<collective_kind::all_reduce>>,
                     max_collectives<0, over<"data">>, max_collectives<0, in_kind<collective_kind::all_gather>>>);
static_assert(!is_within_budget<step, max_messages<3>> && !is_within_budget<step, max_messages<3, over<"model">>> &&
              !is_within_budget<step, max_messages<3, in_kind<collective_kind::all_reduce>>> &&
              !is_within_budget<step, max_bytes<79, in_kind<collective_kind::all_reduce>>> &&
              !is_within_budget<step, max_collectives<0, over<"model">>> &&
              !is_within_budget<step, max_collectives<0, in_kind<collective_kind::all_reduce>>>);

}  // namespace

TEST_CASE("budget: a program has the numbers of the step") {
  const dynamic::mesh m({{"data", 4}, {"model", 3}});
  const auto p = dynamic::compile(mlp, m, dynamic::input<float>({10, 5}, {"data", ""}),
                                  dynamic::input<float>({5, 6}, {"", "model"}), dynamic::input<float>({6, 5}, {"model", ""}));
  CHECK(p.traffic().collectives == step::traffic.collectives);
  CHECK(p.traffic().over("model").collectives == 1);
  CHECK(p.traffic().over("data").collectives == 0);
  CHECK(p.traffic().in(collective_kind::all_reduce).collectives == 1);
  CHECK(p.traffic().bytes == step::traffic.bytes);
  CHECK(p.traffic().over("model").bytes == step::traffic.over("model").bytes);
  CHECK(p.traffic().in(collective_kind::all_reduce).bytes == 80);
  CHECK(p.traffic().in(collective_kind::all_gather).bytes == 0);
  CHECK(p.traffic().messages == 4);
  CHECK(p.traffic().over("data").messages == 0);
  CHECK(p.traffic().in(collective_kind::all_reduce).messages == 4);
  CHECK(p.flops_per_device() == step::flops_per_device);
  CHECK(p.peak_bytes_per_device() == step::peak_bytes_per_device);
  CHECK(error_of([&] { static_cast<void>(p.traffic().over("rows").bytes); }) == "gspmd: the mesh has no axis `rows`");
}

TEST_CASE("budget: messages of every kind of collective, and of one over two axes") {
  const dynamic::mesh m({{"x", 4}, {"y", 3}});
  struct expected {
    collective_kind kind;
    std::vector<std::string> from, to;
    std::int64_t count, messages, bytes;
  };
  const std::int64_t shard = 12 * 12 * 4;
  const expected cases[] = {
      {collective_kind::all_gather, {"x", ""}, {"", ""}, 1, 3, 3 * shard / 4},
      {collective_kind::all_gather, {"x,y", ""}, {"", ""}, 1, 11, 11 * shard / 12},
      {collective_kind::all_to_all, {"x", ""}, {"", "x"}, 1, 3, 3 * shard / 16},
      {collective_kind::collective_permute, {"x", "y"}, {"x", "y"}, 0, 0, 0},
      {collective_kind::collective_permute, {"x,y", ""}, {"y,x", ""}, 1, 1, shard / 12},
  };
  for (const auto& c : cases) {
    dynamic::builder b(m);
    b.output(b.reshard(b.input(dynamic::input<float>({12, 12}, c.from)), c.to));
    const auto p = b.compile();
    CAPTURE(detail::name_of(c.kind));
    CHECK(p.traffic().in(c.kind).collectives == c.count);
    CHECK(p.traffic().collectives == c.count);
    CHECK(p.traffic().in(c.kind).messages == c.messages);
    CHECK(p.traffic().in(c.kind).bytes == c.bytes);
    const bool over_both = c.from[0].size() > 1 && c.count > 0;
    CHECK(p.traffic().over("x").over("y").in(c.kind).messages == (over_both ? c.messages : 0));
    CHECK(p.traffic().in(c.kind).in(collective_kind::all_reduce).collectives == 0);
  }
  dynamic::builder b(m);
  auto partial = dynamic::input<float>({12}, {""});
  partial.partial_axes = "x";
  b.output(b.reshard(b.input(partial), {"x"}));
  const auto p = b.compile();
  CHECK(p.traffic().in(collective_kind::reduce_scatter).messages == 3);
  CHECK(p.traffic().over("x").messages == 3);
}

TEST_CASE("budget: flops of every family of operators") {
  const dynamic::mesh m({{"x", 4}});
  const auto flops = [&](auto f) {
    return dynamic::compile(f, m, dynamic::input<float>({10, 5}, {"x", ""}), dynamic::input<float>({10, 5}, {"x", ""}))
        .flops_per_device();
  };
  CHECK(flops([](auto a, auto b) { return a + b; }) == 15);
  CHECK(flops([](auto a, auto b) { return map([](auto p, auto q) { return p * q + p; }, a, b); }) == 15);
  CHECK(flops([](auto a, auto) { return sum(a, {1}); }) == 15);
  CHECK(flops([](auto a, auto) { return einsum<"ab->a">(a); }) == 15);
  CHECK(flops([](auto a, auto) { return einsum<"ab->ba">(a); }) == 0);
  CHECK(flops([](auto a, auto) { return transpose(a, {1, 0}); }) == 0);
  CHECK(flops([](auto a, auto) { return allow_replication(reshape(a, {50})); }) == 0);
  CHECK(flops([](auto a, auto b) { return einsum<"ab,ac->abc">(a, b); }) == 2 * 3 * 5 * 5);
  CHECK(flops([](auto a, auto b) { return einsum<"ab,ab->">(a, b); }) == 2 * 3 * 5);
  CHECK(flops([](auto a, auto b) {
          static_cast<void>(a * b);  // no output depends on it
          return a;
        }) == 0);
}

TEST_CASE("budget: absurd extents do not wrap round") {
  const dynamic::mesh m({{"x", 2}});
  const auto n = std::int64_t{1} << 27;
  const auto p = dynamic::compile([](auto a, auto b) { return einsum<"ab,bc->ac">(a, b); }, m, dynamic::input<float>({n, n}),
                                  dynamic::input<float>({n, n}));
  CHECK(p.flops_per_device() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("check_budget: the text of the compile error, at run time") {
  const dynamic::mesh m({{"x", 4}});
  dynamic::builder b(m);
  b.output(b.reshard(relu(b.input(dynamic::input<float>({8, 8}, {"x", ""}))), {"", ""}));
  const auto p = b.compile();
  CHECK_NOTHROW(check_budget<max_bytes<192>, max_messages<3>, max_flops<16>>(p));
  const auto begins = [&](auto f, std::string_view what) {
    const auto t = error_of(f);
    CAPTURE(t);
    CHECK(t.find("gspmd: " + std::string(what)) == 0);
  };
  const std::string culprit = "; most of it: all_gather over `x` for reshard at budget.cpp:";
  begins([&] { check_budget<max_bytes<1000>, max_messages<2, in_kind<collective_kind::all_gather>>>(p); },
         "a device sends 3 messages in all_gather, 2 are allowed" + culprit);
  begins([&] { check_budget<max_messages<2>>(p); }, "a device sends 3 messages, 2 are allowed" + culprit);
  begins([&] { check_budget<max_messages<2, over<"x">>>(p); }, "a device sends 3 messages over `x`, 2 are allowed" + culprit);
  begins([&] { check_budget<max_bytes<191, in_kind<collective_kind::all_gather>>>(p); },
         "a device sends 192 bytes in all_gather, 191 are allowed" + culprit);
  begins([&] { check_budget<max_collectives<0, over<"x">>>(p); },
         "a device takes part in 1 collective over `x`, 0 are allowed" + culprit);
  begins([&] { check_budget<max_collectives<0, in_kind<collective_kind::all_gather>>>(p); },
         "a device takes part in 1 collective in all_gather, 0 are allowed" + culprit);
  begins([&] { check_budget<max_messages<2, over<"x">, in_kind<collective_kind::all_gather>>>(p); },
         "a device sends 3 messages over `x` in all_gather, 2 are allowed" + culprit);
  begins([&] { check_budget<max_flops<15>>(p); }, "a device computes 16 flops, 15 are allowed; most of it: relu at budget.cpp:");
  begins([&] { check_budget<max_bytes<0, over<"y">>>(p); }, "`y` is not an axis of the mesh; its axes are x");
}

namespace {

// 8 devices on x. a is [8,6], so a device has a row of 6. w is [6,6], so a device has at most 1 of its 6 rows.
dynamic::program looped(auto body, std::vector<std::string> w = {"", ""}) {
  return dynamic::compile(body, dynamic::mesh({{"x", 8}}), dynamic::input<float>({8, 6}, {"x", ""}),
                          dynamic::input<float>({6, 6}, std::move(w)));
}
constexpr std::int64_t product = 2 * 6 * 6;  // of a row and w

// Five iterations of a conditional whose first body is more expensive. In a compiled program the same numbers are
// constants.
constexpr auto choosing = [](auto a, auto w) {
  return fori_loop(
      5,
      [&](value i, value h) {
        return cond(
            i < std::int64_t{2}, [&](value v) { return einsum<"ab,bc->ac">(v, w); }, [](value v) { return v + v; }, h);
      },
      a);
};
using choosing_step =
    compile<choosing, mesh<axis<"x", 8>>, input<float, shape<8, 6>, split<"x", _>>, input<float, shape<6, 6>, split<_, _>>>;
static_assert(choosing_step::flops_per_device == 5 * (1 + 72));  // the condition, once per iteration
static_assert(is_within_budget<choosing_step, max_flops<365>> && !is_within_budget<choosing_step, max_flops<364>>);

}  // namespace

TEST_CASE("budget: loops count for each trip, conditionals as their dearer body") {
  CHECK(looped(choosing).flops_per_device() == choosing_step::flops_per_device);
  // The more expensive body is the second.
  CHECK(looped([](auto a, auto w) {
          return cond(
              sum(w) > 0.0F, [](value v) { return -v; }, [&](value v) { return einsum<"ab,bc->ac">(v, w); }, a);
        }).flops_per_device() == 36 + 1 + product);
  // Nested loops with operators before, between and after them.
  CHECK(looped([](auto a, auto w) {
          const value b = -a;  // 6
          const value c = fori_loop(
              3,
              [&](value, value h) {
                const value k = fori_loop(
                    4, [&](value, value g) { return einsum<"ab,bc->ac">(g, w); }, h + b);  // 6, 4 products
                return tanh(k);                                                            // 6
              },
              b);
          return c * c;  // 6
        }).flops_per_device() == 6 + 3 * (6 + 4 * product + 6) + 6);
  // Loops in both bodies: 2 products against 20 additions of 6; a conditional in the first.
  CHECK(looped([](auto a, auto w) {
          return cond(
              sum(w) > 0.0F,
              [&](value v) {
                const value u = cond(
                    sum(w) < 1.0F, [&](value p) { return einsum<"ab,bc->ac">(p, w); }, [](value p) { return p * p * p; }, v);
                return fori_loop(
                    2, [&](value, value h) { return einsum<"ab,bc->ac">(h, w); }, u);
              },
              [](value v) {
                return fori_loop(
                    20, [](value, value h) { return h + h; }, v);
              },
              a);
        }).flops_per_device() == 36 + 1 + (1 + product) + 2 * product);  // one sum of w
  CHECK(looped([](auto a, auto w) {
          return fori_loop(
              0, [&](value, value h) { return einsum<"ab,bc->ac">(h, w); }, a);
        }).flops_per_device() == 0);
}

TEST_CASE("budget: messages, bytes and collectives of loops and conditionals") {
  const dynamic::mesh m({{"x", 8}});
  // A sum of split dims is 1 all_reduce of 4 bytes: 14 messages, 7 bytes.
  const auto p = dynamic::compile(
      [](auto a) {
        const value t = a * sum(a);  // 1
        return fori_loop(
            10,
            [](value i, value h) {
              const value s = h / sum(h);  // 10
              return cond(
                  i < std::int64_t{3}, [](value v) { return v * sum(v); },  // 10
                  [](value v) {
                    return fori_loop(
                        3, [](value, value g) { return g * sum(g); }, v);
                  },  // 30
                  s);
            },
            t);
      },
      m, dynamic::input<float>({8}, {"x"}));
  CHECK(p.collectives().size() == 4);
  CHECK(p.traffic().collectives == 41);
  CHECK(p.traffic().messages == 41 * 14);
  CHECK(p.traffic().bytes == 41 * 7);
  CHECK_NOTHROW(check_budget<max_collectives<41>, max_collectives<41, over<"x">>, max_messages<574>, max_bytes<287>>(p));
  CHECK(error_of([&] {
          check_budget<max_collectives<40>>(p);
        }).find("a device takes part in 41 collectives, 40 are allowed; most of it: all_reduce over `x` for") !=
        std::string::npos);
}

TEST_CASE("budget: trips beyond counting do not wrap round") {
  const dynamic::mesh m({{"x", 2}});
  const auto p = dynamic::compile(
      [](auto a) {
        return fori_loop(
            std::int64_t{1} << 62,
            [](value, value h) {
              return fori_loop(
                  std::int64_t{1} << 62, [](value, value g) { return g * sum(reshard(g, split<"x">{})); }, h);
            },
            a);
      },
      m, dynamic::input<float>({8}, {"x"}));
  CHECK(p.flops_per_device() == std::numeric_limits<std::int64_t>::max());
  CHECK(p.traffic().bytes == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("budget: what is the same in every trip is computed before the loop") {
  const auto squared = [](auto a, auto w) {
    return fori_loop(
        5, [&](value, value h) { return einsum<"ab,bc->ac">(h, w * w); }, a);
  };
  CHECK(looped(squared).flops_per_device() == 36 + 5 * product);
  // The value is inside two loops, and is moved only out of the inner loop.
  CHECK(looped([&](auto a, auto w) {
          return fori_loop(
              2,
              [&](value, value h) {
                return fori_loop(
                    5, [&](value, value g) { return einsum<"ab,bc->ac">(g, w * w) + tanh(h); }, h);
              },
              a);
        }).flops_per_device() == 36 + 2 * (6 + 5 * (product + 6)));
  // The values of a conditional stay in it. A value that is larger than its operands stays in the loop.
  CHECK(looped([&](auto a, auto w) {
          return fori_loop(
              5,
              [&](value i, value h) {
                return cond(
                    i < std::int64_t{2}, [&](value v) { return einsum<"ab,bc->ac">(v, w * w); }, [](value v) { return v; }, h);
              },
              a);
        }).flops_per_device() == 5 * (1 + 36 + product));
  dynamic::builder b(dynamic::mesh({{"x", 8}}));
  const value u = b.input(dynamic::input<float>({6}));
  b.output(fori_loop(
      5, [&](value, value h) { return h + sum(einsum<"b,c->bc">(tanh(u), u), 0); }, u));
  for (const auto& n : b.canonical_graph().nodes) {
    if (n.op == detail::code_of<detail::tanh_op>) CHECK(n.region == -1);
    if (n.op == detail::code_of<detail::einsum_op>) CHECK(n.region >= 0);
  }
  // A loop without iterations needs nothing.
  CHECK(looped([](auto a, auto w) {
          return fori_loop(
              0, [&](value, value h) { return einsum<"ab,bc->ac">(h, w * w); }, a);
        }).flops_per_device() == 0);
}
