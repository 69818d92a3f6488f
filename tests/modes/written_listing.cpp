// SPDX-License-Identifier: Apache-2.0
// group: dynamic
// labels: planner
// The list of what every device runs, of programs that write their own communication: it is that of their plans.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include <gspmd/dynamic/strict_program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/inspect.hpp>

using namespace gspmd;

namespace {

struct listed {
  std::vector<std::string> kinds;
  std::int64_t bytes = 0;
};
listed list_of(const dynamic::inspection& p) {
  listed all;
  for (const auto& i : p.instructions()) {
    if (i.communicates) all.kinds.push_back(i.kind);
    all.bytes += i.bytes;
  }
  return all;
}

}  // namespace

TEST_CASE("a written reduction of terms is listed as it is planned, and no slice is taken before it") {
  for (const transition_kind to_terms :
       {transition_kind::convert, transition_kind::reinterpret}) {  // the first device has the partial value, or all
                                                                    // devices have it
    dynamic::builder b(dynamic::mesh({{"x", 2}, {"one", 1}}));
    dynamic::strict_program p(b, "");
    const value x = b.input(dynamic::input<float>({4, 6}));
    p.input(x, {{{state::replica}, {state::invariant}}});
    b.label(0);
    const value terms = p.transition(x, to_terms, "x", {state::replica}, {state::partial});
    b.label(1);
    const value part = p.transition(terms, transition_kind::reduce_scatter, "x", {state::partial}, {state::shard, 0});
    b.label(2);
    b.output(part);
    p.check();
    REQUIRE(p.errors().empty());
    const dynamic::inspection plan(b);
    const listed found = list_of(plan);
    CHECK(found.bytes == plan.program().traffic().bytes);
    CHECK(found.bytes == 2 * 6 * 4);
    CHECK(found.kinds == std::vector<std::string>{"reduce_scatter"});
    CHECK(plan.find(1)->sharding() == std::vector<std::string>{"", ""});
    CHECK(plan.find(1)->is_partial_over("x"));
    CHECK(plan.find(2)->sharding() == std::vector<std::string>{"x", ""});
  }
}

TEST_CASE("what every reader takes a part of is listed whole where a program writes the parts") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  dynamic::strict_program p(b, "");
  const value x = b.input(dynamic::input<float>({4, 6}));
  p.input(x, {{{state::shard, 1}}, {{0, 1}}});
  b.label(0);
  const value rows = p.transition(x, transition_kind::all_gather, "x", {state::shard, 1}, {state::replica});
  b.label(1);
  const value parts = p.transition(-operand(rows), transition_kind::convert, "x", {state::replica}, {state::shard, 0});
  b.output(parts);
  p.check();
  REQUIRE(p.errors().empty());
  const dynamic::inspection plan(b);
  CHECK(list_of(plan).bytes == plan.program().traffic().bytes);
  CHECK(list_of(plan).kinds == std::vector<std::string>{"all_gather"});
  CHECK(plan.find(1)->sharding() == std::vector<std::string>{"", ""});
}
