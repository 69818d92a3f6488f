// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/report/explain.hpp"
#include "support/error_of.hpp"

// A program of the run-time path is a value: its queries, and the equality of two programs.

namespace {

using namespace gspmd;
using sizes = std::vector<std::int64_t>;
using texts = std::vector<std::string>;
using caught::error_of;

constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return std::tuple{einsum<"bf,fd->bd">(h, w2), sum(h), transpose(h, {1, 0})};
};

dynamic::program program_on(const dynamic::mesh& m, std::int64_t rows = 7, const std::string& split = "data") {
  return dynamic::compile(mlp, m, dynamic::input<float>({rows, 5}, {split, ""}), dynamic::input<float>({5, 8}, {"", "model"}),
                          dynamic::input<float>({8, 4}));
}

}  // namespace

TEST_CASE("collectives, bytes, messages, memory and the text are those of the static path") {
  using pod = mesh<axis<"data", 2>, axis<"model", 3>>;
  using step = gspmd::compile<mlp, pod, input<float, shape<7, 5>, split<"data", _>>, input<float, shape<5, 8>, split<_, "model">>,
                              input<float, shape<8, 4>>>;
  const auto program = program_on(dynamic::mesh({{"data", 2}, {"model", 3}}));
  REQUIRE(program.collectives().size() == step::collectives.count);
  for (std::size_t i = 0; i < step::collectives.count; ++i) CHECK(program.collectives()[i] == step::collectives.items[i]);
  CHECK(program.traffic().bytes > 0);
  CHECK(program.traffic().bytes == step::traffic.bytes);
  CHECK(program.traffic().over("model").bytes == step::traffic.over("model").bytes);
  CHECK(program.traffic().messages > 0);
  CHECK(program.traffic().messages == step::traffic.messages);
  CHECK(program.peak_bytes_per_device() == step::peak_bytes_per_device);
  CHECK(explain(program) == explain<step>());
  CHECK(program.shared_input(0) == step::shared_input<0>);
}

TEST_CASE("shardings, local shapes and offsets of any device") {
  const dynamic::mesh m({{"data", 2}, {"model", 3}}, {5, 4, 3, 2, 1, 0});
  std::optional<dynamic::program> program = program_on(m);
  REQUIRE(program->input_count() == 3);
  REQUIRE(program->output_count() == 3);
  const auto x = program->input(0);
  CHECK(x.type() == dtype::f32);
  CHECK(x.global_shape() == sizes{7, 5});
  CHECK(x.local_shape() == sizes{4, 5});
  CHECK(x.local_bytes() == 80);
  CHECK(x.sharding() == texts{"data", ""});
  CHECK(x.partial_axes() == "");
  CHECK(x.text() == "[data, _]");
  const auto w1 = program->input(1);
  CHECK(w1.sharding() == texts{"", "model"});
  CHECK(w1.local_shape() == sizes{5, 3});

  const auto operators = program->operators();
  const auto find = [&](const std::string& name) {
    for (const auto& o : operators)
      if (o.name == name) return o;
    throw error("no " + name);
  };
  CHECK(find("relu").result.text() == "[data, model]");
  CHECK(find("relu").result.local_shape() == sizes{4, 3});
  CHECK(find("relu").file == std::string(__FILE__));
  CHECK(find("relu").line > 10);
  CHECK(find("reduce").result.partial_axes() == "data,model");
  CHECK(find("reduce").result.partial_kind() == monoid::add);
  const auto transposed = program->output(2);
  program.reset();  // its results stay valid

  // device 5 has the coordinates data 0, model 0; every device, compared with the definition
  CHECK(x.offsets(5) == sizes{0, 0});
  CHECK(x.offsets(0) == sizes{4, 0});
  CHECK(x.valid_range(0, along(0)) == detail::index_range{4, 7});
  CHECK(transposed.sharding() == texts{"model", "data"});
  for (std::int64_t device = 0; device < 6; ++device) {
    const std::int64_t position = 5 - device;
    const std::int64_t data = position / 3;
    const std::int64_t model = position % 3;
    CHECK(transposed.offsets(device) == sizes{3 * model, 4 * data});
    CHECK(transposed.valid_range(device, along(0)) == detail::index_range{3 * model, std::min<std::int64_t>(8, 3 * model + 3)});
    CHECK(transposed.valid_range(device, along(1)) == detail::index_range{4 * data, std::min<std::int64_t>(7, 4 * data + 4)});
  }
  CHECK(error_of([&] { static_cast<void>(x.offsets(6)); }) ==
        "gspmd: there is no device 6; the mesh has 6 devices, which count from 0");
  CHECK(error_of([&] { static_cast<void>(x.valid_range(-1, along(0))); }).find("no device -1") != std::string::npos);
  CHECK(error_of([&] { static_cast<void>(x.valid_range(0, along(2))); }).find("dim 2 is not a dim of [7,5]") !=
        std::string::npos);
  const auto again = program_on(m);
  CHECK(error_of([&] { static_cast<void>(again.output(3)); }).find("output 3 does not exist; the program has 3") !=
        std::string::npos);
  CHECK(again.input(0) == x);
  CHECK_FALSE(again.input(1) == x);
}

TEST_CASE("valid ranges cover every element: uneven, empty and single extents, more devices than elements") {
  for (const std::int64_t devices : {1, 2, 5, 8})
    for (const std::int64_t rows : {0, 1, 4, 9}) {
      const dynamic::mesh m({{"a", devices}, {"b", 2}});
      const auto program = dynamic::compile([](auto x) { return x; }, m, dynamic::input<double>({rows, 3}, {"a,b", ""}));
      const auto x = program.input(0);
      std::vector<int> counts(static_cast<std::size_t>(rows));
      for (std::int64_t d = 0; d < 2 * devices; ++d) {
        const auto r = x.valid_range(d, along(0));
        CHECK(r.begin == x.offsets(d)[0]);
        CHECK(r.end - r.begin <= x.local_shape()[0]);
        for (auto i = r.begin; i < r.end; ++i) ++counts[static_cast<std::size_t>(i)];
      }
      for (const int s : counts) CHECK(s == 1);
    }
}

TEST_CASE("equal programs, and unequal ones") {
  const dynamic::mesh m({{"data", 2}, {"model", 3}});
  const auto program = program_on(m);
  CHECK(program == program_on(m));
  CHECK(program == program_on(dynamic::mesh({{"data", 2}, {"model", 3}})));
  CHECK(program == program_on(dynamic::mesh({{"data", 2}, {"model", 3}}, {0, 1, 2, 3, 4, 5})));
  CHECK(program != program_on(dynamic::mesh({{"data", 2}, {"model", 3}}, {1, 0, 2, 3, 4, 5})));
  CHECK(program != program_on(dynamic::mesh({{"data", 3}, {"model", 2}})));
  CHECK(program != program_on(m, 8));
  CHECK(program != program_on(m, 7, ""));
  CHECK(program_on(m, 7, "") != program_on(dynamic::mesh({{"data", 2}, {"model", 3}}), 7, "data"));
  const auto named = [](const char* axis) {
    return dynamic::compile([](auto x) { return x; }, dynamic::mesh({{axis, 2}}), dynamic::input<float>({4}));
  };
  CHECK(named("x") == named("x"));
  CHECK(named("x") != named("y"));

  const auto plus = [&](double number) {
    return dynamic::compile([&](auto x) { return x + number; }, m, dynamic::input<double>({4}));
  };
  CHECK(plus(0.5) == plus(0.5));
  CHECK(plus(0.5) != plus(0.25));
  CHECK(plus(0.0) != plus(-0.0));
  CHECK(plus(std::nan("")) == plus(std::nan("")));

  const auto mapped = [&](double number) {
    return dynamic::compile([&](auto x) { return map([number](double a) { return a + number; }, x); }, m,
                            dynamic::input<double>({4}));
  };
  const auto one = mapped(1);
  const auto copy = one;
  CHECK(one == copy);
  CHECK(one != mapped(2));
  const auto constant = [&] {
    return dynamic::compile([](auto x) { return map([](auto a) { return a; }, x); }, m, dynamic::input<double>({4}));
  };
  CHECK(constant() == constant());
}

TEST_CASE("equality sees every table of a plan") {
  const dynamic::mesh m({{"data", 2}, {"model", 3}});
  dynamic::builder b(m);
  const auto x = b.input(dynamic::input<float>({7, 5}, {"data", ""}));
  const auto w = b.input(dynamic::input<float>({5, 8}, {"", "model"}));
  const auto h = einsum("bd,df->bf", x, w) + iota<float>(x, {7, 8}, 0);
  b.output(transpose(h, {1, 0}));
  b.output(sum(h));
  b.output(x * 2.0);
  const auto graph = detail::canonical_order(b.graph());
  const auto make = [&] { return detail::plan_at_run_time(graph, m.info().shape, m.info().request); };
  const auto original = make();
  const auto is_noticed = [&](auto change) {
    auto other = make();
    const bool equal = detail::same_plan(detail::plan_view(original), detail::plan_view(other));
    change(other);
    return equal && !detail::same_plan(detail::plan_view(original), detail::plan_view(other));
  };
  REQUIRE_FALSE(original.bounds.empty());
  REQUIRE_FALSE(table_of<detail::permutation_spec>(original).empty());
  REQUIRE_FALSE(table_of<detail::reduction_spec>(original).empty());
  REQUIRE_FALSE(table_of<detail::contraction_plan>(original).empty());
  CHECK(is_noticed([](detail::plan& p) { ++p.mesh.sizes[0]; }));
  CHECK(is_noticed([](detail::plan& p) { p.nodes.back().op = detail::in_words(detail::code_of<detail::pow_op>); }));
  CHECK(is_noticed([](detail::plan& p) { p.nodes.pop_back(); }));
  CHECK(is_noticed([](detail::plan& p) { p.completed[0].splits.clear(); }));
  CHECK(is_noticed([](detail::plan& p) { ++p.values.back().where.at; }));
  CHECK(is_noticed([](detail::plan& p) { ++p.values[0].local[0]; }));
  CHECK(is_noticed([](detail::plan& p) { p.steps.back().scratch = 64; }));
  CHECK(is_noticed([](detail::plan& p) { ++p.steps[0].operands.begin; }));
  CHECK(is_noticed([](detail::plan& p) { p.steps.pop_back(); }));
  CHECK(is_noticed([](detail::plan& p) { ++p.slots.back(); }));
  CHECK(is_noticed([](detail::plan& p) { ++p.bounds.back().dim; }));
  CHECK(is_noticed([](detail::plan& p) { ++table_of<detail::planned_group>(p).back().loop[0]; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::scalar_op>(p).back().op = detail::scalar_code_of<detail::pow_op>; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::scalar_op>(p).back().real = 7; }));
  CHECK(is_noticed([](detail::plan& p) { ++table_of<detail::fused_store>(p).back().op; }));
  CHECK(is_noticed([](detail::plan& p) { ++table_of<detail::contraction_plan>(p)[0].n; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::contraction_plan>(p)[0].vector.stride[2] = 9; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::contraction_plan>(p)[0].lhs.packed_at = 9; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::reduction_spec>(p)[0].reduced_by = monoid::max; }));
  CHECK(is_noticed([](detail::plan& p) { table_of<detail::permutation_spec>(p)[0].permutation[0] = 9; }));
  CHECK(is_noticed([](detail::plan& p) { ++p.inputs[0]; }));
  CHECK(is_noticed([](detail::plan& p) { ++p.outputs[0]; }));
  CHECK(is_noticed([](detail::plan& p) { p.shared_inputs[0] = 5; }));
  CHECK(is_noticed([](detail::plan& p) { p.arena_bytes += 64; }));
}
