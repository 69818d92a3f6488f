// SPDX-License-Identifier: Apache-2.0
// labels: planner
// Counts, bytes, messages and flops of a plan: as constants of a step and as values of a program, against closed forms.
#include <doctest/doctest.h>

#include <limits>
#include <string>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>

namespace {

using namespace gspmd;

constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return einsum<"bf,fd->bd">(h, w2);
};
// 10 rows over 4, 6 columns of w1 over 3: 3 and 2 of them per device. `model` ends with an all_reduce of [3,5] floats.
using pod = mesh<axis<"data", 4>, axis<"model", 3>>;
using step = compile<mlp, pod, in<float, dims<10, 5>, split<"data", _>>, in<float, dims<5, 6>, split<_, "model">>,
                     in<float, dims<6, 5>, split<"model", _>>>;
static_assert(step::collectives == list{all_reduce<"model">});
static_assert(step::collective_count == 1 && step::collective_count_over<"model"> == 1 &&
              step::collective_count_over<"data"> == 0 && step::collective_count_in<collective_kind::all_reduce> == 1 &&
              step::collective_count_in<collective_kind::all_gather> == 0);
static_assert(step::bytes_sent_in<collective_kind::all_reduce> == 80 && step::bytes_sent_in<collective_kind::all_gather> == 0);
static_assert(step::messages_sent_per_device == 4 && step::messages_sent_over<"model"> == 4 &&
              step::messages_sent_over<"data"> == 0 && step::messages_sent_in<collective_kind::all_reduce> == 4 &&
              step::messages_sent_in<collective_kind::all_to_all> == 0);
// two products of 3*5*2 multiplications and additions, and relu of [3,2]
static_assert(step::flops_per_device == 2 * 2 * 3 * 5 * 2 + 3 * 2);
static_assert(is_within_budget<step, max_flops<126>> && !is_within_budget<step, max_flops<125>>);
static_assert(is_within_budget<step, max_messages<4>, max_messages_over<"model", 4>, max_messages_over<"data", 0>,
                               max_messages_in<collective_kind::all_reduce, 4>, max_bytes_in<collective_kind::all_reduce, 80>,
                               max_collectives_over<"data", 0>, max_collectives_in<collective_kind::all_gather, 0>>);
static_assert(!is_within_budget<step, max_messages<3>> && !is_within_budget<step, max_messages_over<"model", 3>> &&
              !is_within_budget<step, max_messages_in<collective_kind::all_reduce, 3>> &&
              !is_within_budget<step, max_bytes_in<collective_kind::all_reduce, 79>> &&
              !is_within_budget<step, max_collectives_over<"model", 0>> &&
              !is_within_budget<step, max_collectives_in<collective_kind::all_reduce, 0>>);

std::string text_of(const auto& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("budget: a program has the numbers of the step") {
  const dynamic::mesh m({{"data", 4}, {"model", 3}});
  const auto p = dynamic::compile(mlp, m, dynamic::in<float>({10, 5}, {"data", ""}), dynamic::in<float>({5, 6}, {"", "model"}),
                                  dynamic::in<float>({6, 5}, {"model", ""}));
  CHECK(p.collective_count() == step::collective_count);
  CHECK(p.collective_count_over("model") == 1);
  CHECK(p.collective_count_over("data") == 0);
  CHECK(p.collective_count_in(collective_kind::all_reduce) == 1);
  CHECK(p.bytes_sent_per_device() == step::bytes_sent_per_device);
  CHECK(p.bytes_sent_over("model") == step::bytes_sent_over<"model">);
  CHECK(p.bytes_sent_in(collective_kind::all_reduce) == 80);
  CHECK(p.bytes_sent_in(collective_kind::all_gather) == 0);
  CHECK(p.messages_sent_per_device() == 4);
  CHECK(p.messages_sent_over("data") == 0);
  CHECK(p.messages_sent_in(collective_kind::all_reduce) == 4);
  CHECK(p.flops_per_device() == step::flops_per_device);
  CHECK(p.peak_bytes_per_device() == step::peak_bytes_per_device);
  CHECK(text_of([&] { static_cast<void>(p.bytes_sent_over("rows")); }) == "gspmd: the mesh has no axis `rows`");
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
    b.output(b.reshard(b.input(dynamic::in<float>({12, 12}, c.from)), c.to));
    const auto p = b.compile();
    CAPTURE(detail::name_of(c.kind));
    CHECK(p.collective_count_in(c.kind) == c.count);
    CHECK(p.collective_count() == c.count);
    CHECK(p.messages_sent_in(c.kind) == c.messages);
    CHECK(p.bytes_sent_in(c.kind) == c.bytes);
  }
  dynamic::builder b(m);
  auto partial = dynamic::in<float>({12}, {""});
  partial.partial_axes = "x";
  b.output(b.reshard(b.input(partial), {"x"}));
  const auto p = b.compile();
  CHECK(p.messages_sent_in(collective_kind::reduce_scatter) == 3);
  CHECK(p.messages_sent_over("x") == 3);
}

TEST_CASE("budget: flops of every family of operators") {
  const dynamic::mesh m({{"x", 4}});
  const auto flops = [&](auto f) {
    return dynamic::compile(f, m, dynamic::in<float>({10, 5}, {"x", ""}), dynamic::in<float>({10, 5}, {"x", ""}))
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
  const auto n = std::int64_t{1} << 29;
  const auto p = dynamic::compile([](auto a, auto b) { return einsum<"ab,bc->ac">(a, b); }, m, dynamic::in<float>({n, n}),
                                  dynamic::in<float>({n, n}));
  CHECK(p.flops_per_device() == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("check_budget: the text of the compile error, at run time") {
  const dynamic::mesh m({{"x", 4}});
  dynamic::builder b(m);
  b.output(b.reshard(relu(b.input(dynamic::in<float>({8, 8}, {"x", ""}))), {"", ""}));
  const auto p = b.compile();
  CHECK_NOTHROW(check_budget<max_bytes<192>, max_messages<3>, max_flops<16>>(p));
  const auto begins = [&](auto f, std::string_view what) {
    const auto t = text_of(f);
    CAPTURE(t);
    CHECK(t.find("gspmd: " + std::string(what)) == 0);
  };
  const std::string culprit = "; most of it: all_gather over `x` for reshard at budget.cpp:";
  begins([&] { check_budget<max_bytes<1000>, max_messages_in<collective_kind::all_gather, 2>>(p); },
         "a device sends 3 messages in all_gather, 2 are allowed" + culprit);
  begins([&] { check_budget<max_messages<2>>(p); }, "a device sends 3 messages, 2 are allowed" + culprit);
  begins([&] { check_budget<max_messages_over<"x", 2>>(p); }, "a device sends 3 messages over `x`, 2 are allowed" + culprit);
  begins([&] { check_budget<max_bytes_in<collective_kind::all_gather, 191>>(p); },
         "a device sends 192 bytes in all_gather, 191 are allowed" + culprit);
  begins([&] { check_budget<max_collectives_over<"x", 0>>(p); },
         "a device takes part in 1 collectives over `x`, 0 are allowed" + culprit);
  begins([&] { check_budget<max_collectives_in<collective_kind::all_gather, 0>>(p); },
         "a device takes part in 1 collectives in all_gather, 0 are allowed" + culprit);
  begins([&] { check_budget<max_flops<15>>(p); }, "a device computes 16 flops, 15 are allowed; most of it: relu at budget.cpp:");
  begins([&] { check_budget<max_bytes_over<"y", 0>>(p); }, "`y` is not an axis of the mesh; its axes are x");
}
