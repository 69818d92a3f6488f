// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// Passes that are defined wholly here change and refuse programs on both paths.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/inspect.hpp>

#include "extend/new_pass/program.hpp"
#include "support/error_of.hpp"

using namespace gspmd;

TEST_CASE("a pass of the tests' own replaces divisions, and the results have the same bits") {
  std::vector<double> x(30);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * 7919 % 10007) / 3 - 1000;
  const auto planned =
      dynamic::compile(new_pass::quick_fractions, dynamic::mesh({{"x", 2}}), dynamic::input<double>({30}, {"x"}));
  CHECK(new_pass::divisions_of(planned.view()) == 1);
  const auto plain = run<new_pass::step>(simulated{}, x), quick = run<new_pass::quick_step>(simulated{}, x);
  const auto at_run_time = planned.run(simulated{}, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(quick[i] == plain[i]);
    CHECK(at_run_time[0].data<double>()[i] == plain[i]);
  }
}

TEST_CASE("a pass that a function of the program adds refuses inputs that completion does not split") {
  const auto plan = [](const std::vector<std::string>& split) {
    return dynamic::compile(new_pass::of_split_inputs, dynamic::mesh({{"x", 2}}), dynamic::input<double>({512}, split),
                            dynamic::input<double>({512}));
  };
  CHECK(caught::refusal([&] { static_cast<void>(plan({"x"})); }) == "accepted");
  CHECK(caught::refusal([&] { static_cast<void>(plan({""})); }) ==
        "input 0: each device holds all 4096 bytes of [512]; split a dim");
}

TEST_CASE("the list of passes has the passes of the program at their positions") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  extend::add_pass<new_pass::large_inputs_are_split<64>>(b.graph());
  extend::add_pass<new_pass::exact_reciprocals>(b.graph());
  extend::add_pass<new_pass::exact_reciprocals>(b.graph());
  b.output(new_pass::fractions(b.input(dynamic::input<double>({30}, {"x"}))));
  std::string names;
  for (const auto& pass : dynamic::inspection(b).passes()) names += pass.name + (pass.made.empty() ? ", " : "!, ");
  CHECK(
      names.starts_with("canonical!, read in place!, compose written, exact reciprocals!, compose!, defer!, "
                        "large inputs are split!, complete!, "));
}
