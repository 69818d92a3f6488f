// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// For tools that build and show programs: operators by name, attributes at run time, labels, and the planner's
// decisions.
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gspmd/dynamic/by_name.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/inspect.hpp>

#include "support/error_of.hpp"

namespace {

using namespace gspmd;
using caught::error_of;
using numbers = std::vector<std::int64_t>;
using texts = std::vector<std::string>;

/// y = relu(x w) over data = 2 and model = 3; x is 0, w 1, the product 2, y 3; nothing reads 4.
dynamic::builder mlp() {
  dynamic::builder b(dynamic::mesh({{"data", 2}, {"one", 1}, {"model", 3}}));
  const auto x = b.input(dynamic::input<float>({5, 6}, {"data,one", "model"}));
  b.label(0);
  const auto w = b.input(dynamic::input<float>({6, 4}));
  b.label(1);
  const auto product = einsum("bd,df->bf", x, w);
  b.label(2);
  const auto y = elementwise("relu", std::array{product});
  b.label(3);
  static_cast<void>(elementwise("tanh", std::array{y}));
  b.label(4);
  b.output(y);
  return b;
}

const dynamic::instruction* first_of(const dynamic::inspection& p, const std::string& kind) {
  for (const auto& i : p.instructions())
    if (i.kind == kind) return &i;
  return nullptr;
}

}  // namespace

TEST_CASE("inspect: values by their labels") {
  const dynamic::inspection p(mlp());
  CHECK(p.find(0)->sharding() == texts{"data,one", "model"});
  CHECK(p.find(0)->parts(1) == 3);
  CHECK(p.find(0)->part_of(5, along(0)) == 1);
  CHECK(p.find(0)->part_of(5, along(1)) == 2);
  CHECK(p.find(0)->dim_split_by("model") == 1);
  CHECK(p.find(0)->dim_split_by("one") == 0);
  CHECK(p.completed(1)->sharding() == texts{"model", ""});
  CHECK(p.completed(1)->dim_split_by("data") == -1);
  CHECK(p.find(2)->is_partial_over("model"));
  CHECK_FALSE(p.find(2)->is_partial_over("data"));
  CHECK(p.find(3)->sharding()[0] == "data");
  CHECK_FALSE(p.find(4));
  CHECK_FALSE(p.find(5));
  CHECK(p.is_fixed(0));
  CHECK_FALSE(p.is_fixed(1));
  CHECK(p.operator_of(2) == "einsum");
  CHECK(error_of([&] { static_cast<void>(p.operator_of(4)); }) == "gspmd: no output needs the value with the label 4");
  CHECK(error_of([&] { static_cast<void>(p.find(0)->parts(2)); }) ==
        "gspmd: parts: dim 2 is not a dim of [5,6]; dims count from 0");
}

TEST_CASE("inspect: how a split came to a value") {
  const dynamic::inspection p(mlp());
  const auto back = p.way(1, "model");
  CHECK(back.annotated == 0);
  REQUIRE(back.hops.size() == 1);
  CHECK(back.hops[0].op == "einsum");
  CHECK(back.hops[0].label == 2);
  CHECK(back.hops[0].to == dynamic::split_way::hop::direction::across);
  const auto forward = p.way(3, "data");
  CHECK(forward.annotated == 0);
  REQUIRE(forward.hops.size() == 2);
  CHECK(forward.hops[1].op == "relu");
  CHECK(forward.hops[1].to == dynamic::split_way::hop::direction::forward);
}

TEST_CASE("inspect: the instructions send what the program counts") {
  const dynamic::inspection p(mlp());
  std::int64_t bytes = 0, collectives = 0;
  std::vector<bool> made(p.values().size(), false);
  for (const int v : p.inputs()) made[static_cast<std::size_t>(v)] = true;
  for (const auto& i : p.instructions()) {
    bytes += i.bytes;
    collectives += i.communicates ? 1 : 0;
    for (const int o : i.operands) CHECK(made[static_cast<std::size_t>(o)]);  // operands precede their users
    if (i.result >= 0) made[static_cast<std::size_t>(i.result)] = true;
  }
  for (const int v : p.outputs()) CHECK(made[static_cast<std::size_t>(v)]);
  CHECK(bytes > 0);
  CHECK(bytes == p.program().traffic().bytes);
  CHECK(collectives == p.program().traffic().collectives);
  const auto* const reduction =
      first_of(p, "reduce_scatter") != nullptr ? first_of(p, "reduce_scatter") : first_of(p, "all_reduce");
  REQUIRE(reduction != nullptr);
  CHECK(reduction->axes == "model");
  CHECK(reduction->label == 2);
  CHECK(reduction->sake == 3);
}

TEST_CASE("inspect: a transpose that an exchange does on the way is no exchange of its own") {
  dynamic::builder b(dynamic::mesh({{"a", 2}}));
  const auto before = b.input(dynamic::input<float>({16, 38, 38, 4}, {"", "a", "", ""}));  // transposed after its all_to_all
  b.output(b.reshard(transpose(before, {0, 3, 1, 2}), {"", "a", "", ""}));
  const auto after = b.input(dynamic::input<float>({48, 32}, {"a", ""}));  // transposed before it
  b.output(b.reshard(transpose(after, {1, 0}), {"a", ""}));
  const dynamic::inspection p(b);
  std::int64_t bytes = 0, collectives = 0;
  for (const auto& i : p.instructions()) {
    bytes += i.bytes;
    collectives += i.communicates ? 1 : 0;
  }
  CHECK(collectives == 2);
  CHECK(collectives == p.program().traffic().collectives);
  CHECK(bytes == p.program().traffic().bytes);
}

TEST_CASE("inspect: loops and conditionals, of which nothing has a label") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const auto x = b.input(dynamic::input<float>({4, 4}, {"x", ""}));
  b.output(fori_loop(
      3, [](value, value c) { return einsum("ij,jk->ik", c, c) * 0.5; }, x));
  const dynamic::inspection p(b);
  REQUIRE(first_of(p, "loop") != nullptr);
  REQUIRE(first_of(p, "all_gather") != nullptr);
  CHECK(first_of(p, "all_gather")->label == -1);
  CHECK(p.program().traffic().bytes == 3 * first_of(p, "all_gather")->bytes);  // the bytes of an instruction are for one
                                                                               // iteration
}

TEST_CASE("inspect: completion before the program is compiled") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const auto x = b.input(dynamic::input<float>({4}));
  const auto y = elementwise("abs", std::array{x});
  const auto unused = elementwise("abs", std::array{y});
  b.output(y);
  CHECK(dynamic::completion_of(b).of(y)->sharding() == texts{""});
  b.annotate(x, {"x"});
  CHECK(dynamic::completion_of(b).of(y)->sharding() == texts{"x"});
  CHECK_FALSE(dynamic::completion_of(b).of(unused));
  CHECK(b.compile().output(0).sharding() == texts{"x"});
}

TEST_CASE("builder: attributes and types that are known at run time") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const numbers shape{2, 3}, turned{1, 0}, both{0, 1}, none{}, three{3, 2};
  const auto i = b.iota(dtype::s32, shape, -1);
  const auto one = b.constant(dtype::f64, shape, 1);
  b.output(reshape(transpose(cast(i, dtype::f64), turned), shape));
  b.output(reduce(one, monoid::add, both));
  b.output(reduce(one, monoid::add, none));  // no dims: the tensor itself
  b.output(reduce(one, monoid::add, {}));    // all dims
  b.output(flip(broadcast_in_dim(b.constant(dtype::f32, numbers{3}, 2.5), three, numbers{0}), numbers{-2}));
  b.output(elementwise("compare_lt", std::array{one, one}));
  const auto result = b.compile().run(simulated{});
  CHECK(result[0].shape == shape);
  CHECK(result[0].data<double>()[1] == 0);
  CHECK(result[0].data<double>()[2] == 1);
  CHECK(result[0].data<double>()[5] == 2);
  CHECK(result[1].data<double>()[0] == 6);
  CHECK(result[2].shape == shape);
  CHECK(result[3].shape.empty());
  CHECK(result[4].shape == three);
  CHECK(result[4].data<float>()[5] == 2.5F);
  CHECK(result[5].type == dtype::pred);
  CHECK_FALSE(result[5].data<bool>()[0]);
}

TEST_CASE("builder: one mistake after the other") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const auto x = b.input(dynamic::input<float>({2, 3}));
  const location at{"here", 0};
  const auto mistake_of = [&](auto f) {
    f();
    return b.take_mistake();
  };
  CHECK(mistake_of([&] { elementwise("soft", std::array{x}, at); }) == "soft `here`: there is no such elementwise operator");
  CHECK(mistake_of([&] { elementwise("add", std::array{x}, at); }) == "add `here`: takes 2 operands, and there are 1");
  CHECK(mistake_of([&] { einsum("ab->ba", x, x, at); }) == "einsum `here`: the equation `ab->ba` has 1 operands, the call has 2");
  CHECK(mistake_of([&] { einsum("ab,bc->ac", x, {}, at); }) ==
        "einsum `here`: the equation `ab,bc->ac` has 2 operands, the call has 1");
  CHECK(mistake_of([&] { b.constant(dtype::s32, numbers{2}, 0.5, at); }).find("constant `here`") == 0);
  CHECK(mistake_of([&] { flip(x, numbers{std::numeric_limits<std::int64_t>::max()}, at); }).find("flip `here`") == 0);
  CHECK(mistake_of([] {}).empty());
  CHECK(equation_problem("ab,bc->ac").empty());
  CHECK(equation_problem("a?->a").find("column 2: ") == 0);
  CHECK(error_of([&] { b.constant(dtype::f32, numbers(33, 1), 1); }) == "gspmd: constant: a tensor has at most 32 dims");
  b.output(x);
  CHECK(b.compile().traffic().bytes == 0);
}

TEST_CASE("mesh: axes, their parts and what names mean") {
  const dynamic::mesh m({{"x", 8}, {"y", 2}});
  CHECK(m.names() == "x,y");
  CHECK(m.find("x") == std::vector<std::size_t>{0});
  CHECK(m.find("rows").empty());
  CHECK(m.size_of("rows") == 0);
  const auto cut = m.with_parts({"x:(2)2", "x:(1)3", "z:(1)2", "y", "y:(1)2"});
  REQUIRE(cut.axes().size() == 4);
  CHECK(cut.axes()[1].name == "x:(2)2");
  CHECK(cut.axes()[2].name == "x:(4)2");
  CHECK(cut.names() == "x,y");
  CHECK(cut.size_of("x") == 8);
  CHECK(cut.find("x") == std::vector<std::size_t>{0, 1, 2});
  CHECK(cut.find("x:(2)4") == std::vector<std::size_t>{1, 2});
  CHECK(m.axes().size() == 2);
}

TEST_CASE("XLA's text in the words of split") {
  const dynamic::mesh m({{"data", 2}, {"model", 4}});
  const auto s = xla_sharding::parse("{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}");
  const auto on = s.on_named(m.info(), 2);
  CHECK(on.dims == texts{"data", ""});
  CHECK(on.partial_axes == "model");
  CHECK(on.manual_axes.empty());
  CHECK(on.annotated);
  CHECK(s.listed_devices(m.info()) == 0);
  CHECK(xla_sharding::parse("{devices=[8]0,1,2,3,4,5,6,7}").listed_devices(m.info()) == 8);
  CHECK(xla_sharding::parse("{devices=[4]0,1,2,3}").listed_devices(m.info()) == 0);  // of another mesh, which `on` refuses
  CHECK_FALSE(xla_sharding::parse("{unknown}").on_named(m.info(), 1).annotated);
}
