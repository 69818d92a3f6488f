// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
#include "new_operator/program.hpp"

#include <doctest/doctest.h>

// An operator that is defined wholly here is completed, partitioned, differentiated, counted, explained, refused and run.

using namespace gspmd;

TEST_CASE("an operator of the tests' own runs on both paths") {
  CHECK(new_operator::wrong_elements(simulated{}) == 0);
  CHECK(new_operator::wrong_elements(threads{}) == 0);
  using alone = compile<new_operator::program, mesh<axis<"x", 1>>, in<double, dims<5, 7>>, in<double, dims<5, 7>>>;
  const new_operator::data d;
  const auto [sums, gradient] = run<alone>(self{}, d.x, d.w);
  for (std::size_t i = 0; i < 5; ++i) CHECK(sums.data()[i] == d.sums[i]);
  for (std::size_t i = 0; i < 35; ++i) CHECK(gradient.data()[i] == d.gradient[i]);
}

TEST_CASE("it is explained, counted and refused") {
  const auto sums = [](auto x) { return new_operator::sum_last(x); };
  const auto planned = dynamic::compile(sums, dynamic::mesh({{"x", 2}}), dynamic::in<float>({4, 6}, {"x", ""}));
  const std::string explained = explain(planned);
  CHECK(explained.find("sum_last of the last dim") != std::string::npos);
  CHECK(planned.flops_per_device() == 2 * 6);
  std::string refused;
  try {
    static_cast<void>(dynamic::compile(sums, dynamic::mesh({{"x", 2}}), dynamic::in<float>({})));
  } catch (const error& e) {
    refused = e.what();
  }
  CHECK(refused.find("sum_last") != std::string::npos);
  CHECK(refused.find("rank 0 has no last dim") != std::string::npos);
}
