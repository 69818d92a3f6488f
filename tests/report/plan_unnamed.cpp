// SPDX-License-Identifier: Apache-2.0
// labels: planner
// Pictures and tables of gspmd-plan for a program whose document does not name its operators.
#include <doctest/doctest.h>

#include <string>

#if __has_include(<nlohmann/json.hpp>)  // as for the tool itself
#include <gspmd/report/report.hpp>

#include "../tools/gspmd-plan/dot.hpp"
#include "../tools/gspmd-plan/json_out.hpp"
#include "../tools/gspmd-plan/svg.hpp"
#include "../tools/gspmd-plan/table.hpp"

namespace {
bool has(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }
}  // namespace

TEST_CASE("a plan is shown whose steps have no label") {
  using namespace gspmd;
  plan_tool::built_program built;
  built.program.emplace(dynamic::mesh({{"x", 2}}));
  const auto x = built.program->input(dynamic::input<float>({4, 6}, {"", "x"}));
  built.program->label(0);
  const auto sums = einsum("ab->a", x);
  const auto read = exp(sums);  // neither has one
  const auto z = read + read;
  built.program->output(z);
  built.program->label(1);
  for (const auto unnamed : {sums, read}) built.program->graph().nodes[static_cast<std::size_t>(unnamed.id())].tag = -1;
  built.values = {{"x", "input", "", dtype::f32, {4, 6}, true}, {"z", "add", "", dtype::f32, {4}, false}};
  built.inputs = {0};
  built.outputs = {1};
  plan_tool::error_list errors;
  const auto p = plan_tool::planned(std::move(built), errors);
  REQUIRE(p);

  const auto dot = plan_tool::dot_graph(*p, gspmd::number_form::exact);
  CHECK(has(dot, "(unnamed)"));
  CHECK(has(dot, "all_reduce (unnamed) over x"));
  CHECK(has(plan_tool::plan_json(&*p, {}), "(unnamed)"));
  const network net(1e12, {{"x", topology::switched, 1e9, 1e-6}});
  const auto table = plan_tool::plan_table(*p, net, {}, {}, gspmd::number_form::exact).text();
  CHECK(has(table, "all_reduce over x of (unnamed)"));
  CHECK(has(table, "1 all_reduce"));
  CHECK(has(plan_tool::shard_picture(*p).of({0, 1}), "z: f32 [4]"));
  CHECK(has(timeline(p->program(), net), "all_reduce"));
  CHECK(has(timeline_svg(p->program(), net), "all_reduce"));
}
#endif
