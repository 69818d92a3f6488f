// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: random
// The list of passes: its order, the effect of each pass, and right results without the passes that only optimise.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/detail/passes/typed/find_types.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/report/inspect.hpp"
#include "support/equal_plans.hpp"
#include "support/run_random.hpp"

namespace {

using namespace gspmd;
using detail::without;
using texts = std::vector<std::string>;
using data = std::vector<float>;

data counted(std::size_t n) {
  data x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * 7919 % 97) / 8;
  return x;
}

/// The outputs of a program that is planned without some passes, and the plan.
template <class Off>
struct result_without {
  std::shared_ptr<const detail::plan> plan;
  std::vector<std::vector<std::byte>> outputs;

  template <class... Inputs>
  explicit result_without(const dynamic::builder& b, const Inputs&... inputs) {
    const auto g = detail::program_to_plan<detail::pass_positions{}, Off>(b.graph());
    plan = std::make_shared<const detail::plan>(detail::plan_again<Off>(g, b.mesh().info().shape, b.mesh().info().request));
    const dynamic::program p(b.mesh(), plan, b.functions());
    for (auto& y : p.run(simulated{}, inputs...)) outputs.push_back(std::move(y.bytes));
  }
};
/// Checks that a pass changes the plan and not the results.
template <class Pass, class... Inputs>
void check_without(const dynamic::builder& b, const Inputs&... inputs) {
  const result_without<without<>> with(b, inputs...);
  const result_without<without<Pass>> apart(b, inputs...);
  CHECK(with.plan->broken == detail::mistake::none);
  CHECK(with.outputs == apart.outputs);
  CHECK(reference::difference(detail::plan_view(*with.plan), detail::plan_view(*apart.plan)) != "");
}

std::string joined(const texts& list) {
  std::string all;
  for (const auto& t : list) all += t + ", ";
  return all;
}

/// relu(2 x + 1). If `is_typed`, the sharding of every value is written as types would state it.
dynamic::inspection made(bool is_typed) {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  const auto x = b.input(dynamic::input<float>({8, 4}, {"x", ""}));
  b.output(relu(x * 2.0 + 1.0));
  if (is_typed) detail::make_explicit(b.graph());
  return dynamic::inspection(b);
}

}  // namespace

TEST_CASE("passes: a typed program and the same one untyped go through one list, to which types add two passes") {
  const std::string last =
      "compose, defer, complete, cut, uses, narrow, choose, search, refuse, emit, join, steps, row blocks, order, place<true>, "
      "place<false>, overlap, ";
  const texts of_types{"compose written"}, of_planned{"read in place", "compose", "defer"};
  texts names[2], idle[2];
  for (const bool is_typed : {false, true})
    for (const auto& p : made(is_typed).passes()) {
      names[is_typed].push_back(p.name);
      if (p.made.empty()) idle[is_typed].push_back(p.name);
    }
  CHECK(joined(names[0]) == "canonical, read in place, compose written, " + last);
  CHECK(joined(names[1]) == "check types, canonical, read in place, compose written, types, " + last);
  const auto has = [](const texts& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& name : names[0]) {
    CAPTURE(name);
    CHECK(has(idle[0], name) == (has(of_types, name) || (has(idle[1], name) && !has(of_planned, name))));
    CHECK(has(idle[1], name) == (has(of_planned, name) || (has(idle[0], name) && !has(of_types, name))));
  }
  CHECK(!has(idle[1], "check types"));
  CHECK(!has(idle[1], "types"));
}

TEST_CASE("passes: what each made") {
  const auto list = made(false).passes();
  const auto of = [&](const std::string& name) {
    for (const auto& p : list)
      if (p.name == name) return p.made;
    return std::string("no such pass");
  };
  CHECK(of("canonical") == "6 values");
  CHECK(of("complete") == "6 shardings");
  CHECK(of("steps") == "1 step");
  CHECK(of("order") == "");
  CHECK(of("regions") == "no such pass");
}

TEST_CASE("passes: without one the plan is another one, and its answer the same") {
  const dynamic::mesh m({{"x", 4}});
  {  // two movements are one
    dynamic::builder b(m);
    const auto x = b.input(dynamic::input<float>({64, 4}, {"x", ""}));
    b.output(slice(pad(x, {1, 0}, {0, 0}), {0, 0}, {64, 4}) + x);
    check_without<detail::compose_pass>(b, counted(256));
  }
  {  // one reshard of a sum, of two summands
    dynamic::builder b(m);
    const auto x = b.input(dynamic::input<float>({64, 32}, {"x", ""})), y = b.input(dynamic::input<float>({64, 32}, {"x", ""}));
    b.output(b.reshard(x, {"", ""}) + b.reshard(y, {"", ""}));
    check_without<detail::defer_pass>(b, counted(2048), counted(2048));
  }
  {  // two sums are one message
    dynamic::builder b(m);
    const auto x = b.input(dynamic::input<float>({64, 4}, {"x", ""})), y = b.input(dynamic::input<float>({64, 4}, {"x", ""}));
    b.output(sum(x, {0}));
    b.output(sum(y, {0}));
    check_without<detail::join_pass>(b, counted(256), counted(256));
  }
  {  // rows go through the cache once
    dynamic::builder b(m);
    b.output(softmax(b.input(dynamic::input<float>({4096, 1024}, {"x", ""})), 1));
    check_without<detail::row_blocks_pass>(b, counted(4096 * 1024));
  }
  {  // the exchange for the boundary is in progress while the interior is computed
    dynamic::builder b(m);
    const auto x = b.input(dynamic::input<float>({512, 1024}, {"x", ""}));
    b.output(slice(pad(x, {1, 0}, {0, 0}), {0, 0}, {512, 1024}) + x * 2.0);
    check_without<detail::overlap_pass>(b, counted(512 * 1024));
  }
}

TEST_CASE("passes: random programs without one of them") {
  const auto first = reference::setting("GSPMD_SEED", 1), count = reference::programs(300);
  int reordered = 0, composed = 0, joined = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    reference::random_options options;
    options.maps = seed % 2 == 0;
    const reference::random_program program(seed, options);
    const auto plain = detail::program_to_plan_at_run_time(program.g);
    const auto plan = detail::plan_at_run_time(plain, program.mesh, {});
    const auto check = [&](const detail::plan& other) {
      simulated_communicator comm(program.device_count());
      const detail::plan_view view(other);
      const auto wrong = reference::run_and_check(comm, program, view);
      if (!wrong.empty()) FAIL_CHECK(wrong);
      return reference::difference(detail::plan_view(plan), view) == "" ? 0 : 1;
    };
    const auto written = [&]<class Off>(Off) {
      return detail::plan_at_run_time(detail::program_to_plan<detail::pass_positions{}, Off>(program.g), program.mesh, {});
    };
    reordered += check(detail::plan_again<without<detail::order_pass>>(plain, program.mesh, {}));
    joined += check(detail::plan_again<without<detail::join_pass>>(plain, program.mesh, {}));
    check(detail::plan_again<without<detail::row_blocks_pass, detail::overlap_pass>>(plain, program.mesh, {}));
    composed += check(written(without<detail::compose_pass>()));
    check(written(without<detail::defer_pass>()));
  }
  CHECK(reordered > 0);
  CHECK(joined > 0);
  CHECK(composed > 0);
}
