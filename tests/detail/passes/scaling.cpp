// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: plans
// GShard Table 4: the growth of computation and communication of partitioned operators with the number of devices, from
// plans for 2 to 2048 devices. Also the growth of the planning time with the program.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/network.hpp>

#include "../examples/papers/operators.hpp"
#include "support/golden_plans.hpp"

namespace {

using namespace gspmd;

using papers::exponent;
dynamic::input_spec f32(std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  return dynamic::input<float>(std::move(shape), std::move(sharding));
}

}  // namespace

TEST_CASE("the exponents of GShard Table 4, planned for 2 to 2048 devices") {
  const network net(1e12, {{"x", topology::torus, 1e9, 0}, {"y", topology::torus, 1e9, 0}});
  for (const auto& r : papers::table_4()) {
    CAPTURE(r.name);
    std::vector<double> devices, total, per_device, communication;
    std::size_t steps = 0;
    for (int log = 1; log <= 11; ++log) {
      const auto plan = [&](int x, int y) {
        dynamic::builder b(dynamic::mesh({{"x", x}, {"y", y}}));
        r.program(b, std::int64_t{1} << log);
        return b.compile();
      };
      const auto p = plan(1 << (log + 1) / 2, 1 << log / 2);
      CAPTURE(log);
      std::string expected = r.collective;
      for (std::size_t at = 0; log == 1 && (at = expected.find(",y")) != std::string::npos;)
        expected.erase(at, 2);  // y has one device and no communication
      CHECK(golden::collectives_of(p) == expected);
      if (steps == 0) steps = p.view().steps.size();
      CHECK(p.view().steps.size() == steps);  // the plan does not grow with the devices
      devices.push_back(std::exp2(log));
      total.push_back(static_cast<double>(plan(1, 1).flops_per_device()));
      per_device.push_back(static_cast<double>(p.flops_per_device()));
      communication.push_back(estimate(p, net).communication);
    }
    CHECK(exponent(devices, total) == doctest::Approx(r.total).epsilon(0.001));
    CHECK(exponent(devices, per_device) == doctest::Approx(r.per_device).epsilon(0.001));
    // With few devices (D-1)/D is not close to 1, so the slope of the larger half is used.
    if (*r.collective == 0) CHECK(communication.back() == 0);
    else
      CHECK(std::abs(exponent({devices.begin() + 5, devices.end()}, {communication.begin() + 5, communication.end()}) -
                     r.communication) < 0.02);
  }
}

TEST_CASE("planning takes work in proportion to the operators") {
  const auto chain = [](value x, value w, int count) {  // one value has one user for each operator
    for (int i = 0; i < count; ++i) x = einsum<"ab,bc->ac">(x, w);
    return x;
  };
  const auto centred = [](value x, value w, int count) {
    for (int i = 0; i < count / 4; ++i) x = x + (w - sum(w * static_cast<double>(i)));
    return x;
  };
  const auto long_lived = [](value x, value w, int count) {
    std::vector<value> made;
    for (int i = 0; i < count / 2; ++i) made.push_back(x = einsum<"ab,bc->ac">(x, w));
    for (int i = count / 2; i-- > 0;) x = einsum<"ab,bc->ac">(x, made[static_cast<std::size_t>(i)]);
    return x;
  };
  const auto shifted = [](value x, value w, int count) {  // all halos are exchanged before the loops at its end
    value y = x + sum(w);
    for (int i = 0; i < count / 5; ++i) {
      const value z = x * static_cast<double>(i);
      y = y + shift(z, 1, along(0)) + shift(z, -1, along(0));
    }
    return y;
  };
  using program = value (*)(value, value, int);
  for (const program p : {program(chain), program(centred), program(long_lived), program(shifted)}) {
    struct cost {
      double work, ticks;  // of one operator
    };
    const auto cost_per_operator = [&](int count) {
      const dynamic::mesh m({{"x", 2}, {"y", 4}});
      dynamic::builder b(m);
      const auto x = b.input(f32({64, 64}, {"x", ""}));
      b.output(p(x, b.input(f32({64, 64}, {"", "y"})), count));
      const auto work = detail::planning_work::done;
      const auto before = std::clock();
      const auto plan = detail::plan_at_run_time(detail::canonical_order(b.graph()), m.info().shape, {});
      const auto after = std::clock();
      CHECK(plan.error.empty());
      return cost{static_cast<double>(detail::planning_work::done - work) / count, static_cast<double>(after - before) / count};
    };
    // 32 times the operators. The prices and nodes are counted, so they are the same on every machine.
    cost few = cost_per_operator(500), many = cost_per_operator(16000);
    CHECK(many.work < 1.1 * few.work);
    // The passes after the choice of shardings do not count. If one of them compared every operator with all operators,
    // the time of an operator would grow 32 times. Caches explain a factor of 3, and the fastest of 9 runs is compared.
    for (int repeat = 1; repeat < 9 && many.ticks >= 8 * few.ticks; ++repeat) {
      few.ticks = std::min(few.ticks, cost_per_operator(500).ticks);
      many.ticks = std::min(many.ticks, cost_per_operator(16000).ticks);
    }
    CAPTURE(few.ticks);
    CAPTURE(many.ticks);
    CHECK(many.ticks < 8 * few.ticks);
  }
}
