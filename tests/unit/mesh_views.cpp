// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/explain.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/run.hpp"

using namespace gspmd;

namespace {

std::vector<float> counted(std::size_t n) {
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  return x;
}

}  // namespace

TEST_CASE("from mesh(4,2) to mesh(2,4) and back") {
  const auto m = dynamic::views({dynamic::mesh({{"x", 4}, {"y", 2}}), dynamic::mesh({{"a", 2}, {"b", 4}})});
  dynamic::builder b(m);
  auto x = b.input(dynamic::in<float>({8, 12}, {"x", "y"}));
  auto there = b.reshard(x * 2.0, {"a", "b"});
  auto back = b.reshard(there + 1.0, {"x", "y"});
  b.output(there);
  b.output(back);
  const auto p = b.compile();
  MESSAGE(dynamic::explain(p));
  const auto data = counted(96);
  const auto y = p.run(simulated{}, data);
  for (std::size_t i = 0; i < 96; ++i) {
    CHECK_EQ(y[0].data<float>()[i], data[i] * 2);
    CHECK_EQ(y[1].data<float>()[i], data[i] * 2 + 1);
  }
}
