// SPDX-License-Identifier: Apache-2.0
// labels: once
// group: compiled
// alone: yes
#include "extend/new_operator/logaddexp.hpp"
#include "extend/new_operator/program.hpp"
#include "extend/new_operator/weighted_mean.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/transform/vmap.hpp>

// An operator that is defined wholly here is completed, partitioned, differentiated, counted, explained, refused and
// run.

using namespace gspmd;

TEST_CASE("an operator of the tests' own runs on both paths") {
  CHECK(new_operator::wrong_elements(simulated{}) == 0);
  CHECK(new_operator::wrong_elements(threads{}) == 0);
  using alone = compile<new_operator::program, mesh<axis<"x", 1>>, input<double, shape<5, 7>>, input<double, shape<5, 7>>>;
  const new_operator::data d;
  const auto [sums, gradient, largest, by_largest] = run<alone>(serial{}, d.x, d.w);
  for (std::size_t i = 0; i < 5; ++i) CHECK(sums.data()[i] == d.sums[i]);
  for (std::size_t i = 0; i < 35; ++i) CHECK(gradient.data()[i] == d.gradient[i]);
  for (std::size_t i = 0; i < 5; ++i) CHECK(largest.data()[i] == d.largest[i]);
  for (std::size_t i = 0; i < 35; ++i) CHECK(by_largest.data()[i] == d.by_largest[i]);
}

TEST_CASE("it is explained, counted and refused") {
  const auto sums = [](auto x) { return new_operator::sum_last(x); };
  const auto planned = dynamic::compile(sums, dynamic::mesh({{"x", 2}}), dynamic::input<float>({4, 6}, {"x", ""}));
  const std::string explained = explain(planned);
  CHECK(explained.find("sum_last of the last dim") != std::string::npos);
  CHECK(planned.flops_per_device() == 2 * 6);
  std::string refused;
  try {
    static_cast<void>(dynamic::compile(sums, dynamic::mesh({{"x", 2}}), dynamic::input<float>({})));
  } catch (const error& e) {
    refused = e.what();
  }
  CHECK(refused.find("sum_last") != std::string::npos);
  CHECK(refused.find("rank 0 has no last dim") != std::string::npos);
}

TEST_CASE("it takes a dim of examples") {
  const auto sums = [](value x) { return vmap<1>([](value one) { return new_operator::sum_last(one); })(x); };
  const auto planned = dynamic::compile(sums, dynamic::mesh({{"x", 2}}), dynamic::input<double>({2, 3, 4}, {"", "x", ""}));
  CHECK(planned.traffic().bytes == 0);
  std::vector<double> x(24);
  for (std::size_t i = 0; i < 24; ++i) x[i] = static_cast<double>(i);
  const auto found = planned.run(simulated{}, x);
  REQUIRE(found[0].shape == std::vector<std::int64_t>{3, 2});
  for (std::size_t e = 0; e < 3; ++e)
    for (std::size_t i = 0; i < 2; ++i)
      CHECK(found[0].data<double>()[2 * e + i] == static_cast<double>(4 * (12 * i + 4 * e) + 6));
}

TEST_CASE("a composite of the tests' own computes bf16 in float and rounds once") {
  const auto mean_of = [](auto x, auto w) { return new_operator::weighted_mean(x, w, {1}); };
  const auto in = dynamic::input<bf16>({2, 600}, {"", "x"});
  const auto planned = dynamic::compile(mean_of, dynamic::mesh({{"x", 2}}), in, in);
  const std::vector<bf16> x(1200, bf16(3.0F)), w(1200, bf16(1.0F));
  const auto found = planned.run(simulated{}, x, w);
  for (std::size_t i = 0; i < 2; ++i) CHECK(static_cast<float>(found[0].data<bf16>()[i]) == 3.0F);  // bf16 sums of 1 end at 256
}

namespace {
constexpr auto soft_maximum = [](auto a, auto b) {
  auto y = new_operator::logaddexp(a, b) * 2.0;
  auto loss = sum(y * a);
  return std::tuple{y, grad(loss, a), grad(loss, b)};
};
}  // namespace

TEST_CASE("an elementwise operator of the tests' own has values and gradients on both paths, in one loop") {
  using step =
      compile<soft_maximum, mesh<axis<"x", 2>>, input<double, shape<6>, split<"x">>, input<double, shape<6>, split<"x">>>;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> a = {1, 2, -3, 700, 0, infinity}, b = {2, 2, 5, 1, -infinity, 3};
  const auto planned = dynamic::compile(soft_maximum, dynamic::mesh({{"x", 2}}), dynamic::input<double>({6}, {"x"}),
                                        dynamic::input<double>({6}, {"x"}));
  const auto at_run_time = planned.run(simulated{}, a, b);
  const auto [y, by_first, by_second] = run<step>(simulated{}, a, b);
  for (std::size_t i = 0; i < 5; ++i) {
    const double larger = std::max(a[i], b[i]), sum = std::exp(a[i] - larger) + std::exp(b[i] - larger);
    const double value = 2 * (larger + std::log(sum));
    const double by_a = value + a[i] * 2 * std::exp(a[i] - larger) / sum, by_b = a[i] * 2 * std::exp(b[i] - larger) / sum;
    CHECK(y.data()[i] == doctest::Approx(value));
    CHECK(by_first.data()[i] == doctest::Approx(by_a));
    CHECK(by_second.data()[i] == doctest::Approx(by_b));
    CHECK(at_run_time[0].data<double>()[i] == y.data()[i]);
    CHECK(at_run_time[1].data<double>()[i] == by_first.data()[i]);
    CHECK(at_run_time[2].data<double>()[i] == by_second.data()[i]);
  }
  CHECK(y.data()[5] == infinity);
  CHECK(explain(planned).find("logaddexp") != std::string::npos);
  std::string refused;
  try {
    static_cast<void>(dynamic::compile([](auto x) { return new_operator::logaddexp(x, x); }, dynamic::mesh({{"x", 2}}),
                                       dynamic::input<std::int32_t>({6}, {"x"})));
  } catch (const error& e) {
    refused = e.what();
  }
  CHECK(refused.find("logaddexp") != std::string::npos);
  CHECK(refused.find("is not defined for") != std::string::npos);
}
