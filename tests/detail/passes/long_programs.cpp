// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// timeout: 120
// group: random
#include <doctest/doctest.h>

#include <vector>

#include "gspmd/dynamic.hpp"
#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/windows.hpp"

// Programs of tens of thousands of operators at run time: registers of a loop are numbered by int16, walks must not eat
// the call stack.

namespace {

using namespace gspmd;

/// Checks that no loop has more registers than its numbers can represent, and that all register numbers are valid.
void check_loops(const dynamic::program& program, std::size_t least_loops) {
  const auto& view = program.view();
  CHECK(table_of<detail::planned_group>(view).size() >= least_loops);
  for (const auto& s : view.steps) {
    if (!detail::is<detail::kernels::fused>(s)) continue;
    const auto& g = table_of<detail::planned_group>(view)[static_cast<std::size_t>(s.spec)];
    CHECK(g.ops.count <= 32'767);
    bool holds = true;
    for (int k = 0; k < g.ops.count; ++k) {
      const auto& op = table_of<detail::scalar_op>(view)[static_cast<std::size_t>(g.ops.begin + k)];
      for (const auto a : op.args) holds = holds && a >= 0 && a < k;
      if (op.op == detail::opcode::parameter) holds = holds && op.slot >= 0 && op.slot < s.operands.count;
    }
    for (int k = 0; k < g.stores.count; ++k) {
      const auto& store = table_of<detail::fused_store>(view)[static_cast<std::size_t>(g.stores.begin + k)];
      holds = holds && store.op >= 0 && store.op < g.ops.count && store.slot == k;
    }
    CHECK(holds);
    CHECK(g.stores.count == s.results.count);
  }
}

}  // namespace

TEST_CASE("a chain of 70,000 elementwise operators") {
  const dynamic::mesh m({{"x", 3}});
  constexpr int length = 70'000;
  dynamic::builder b(m);
  const auto x = b.input(dynamic::input<std::int64_t>({7}, {"x"}));
  value h = x;
  for (int i = 0; i < length; ++i) h = i % 3 == 0 ? h + x : i % 3 == 1 ? max(h, x) : x - h;
  b.output(h);
  const auto program = b.compile();
  check_loops(program, 3);
  const std::vector<std::int64_t> data{-3, 0, 1, 4, 9, -8, 7};
  const auto result = program.run(simulated{}, data);
  for (std::size_t e = 0; e < data.size(); ++e) {
    std::int64_t y = data[e];
    for (int i = 0; i < length; ++i) y = i % 3 == 0 ? y + data[e] : i % 3 == 1 ? std::max(y, data[e]) : data[e] - y;
    CHECK(result[0].data<std::int64_t>()[e] == y);
  }
}

TEST_CASE("34,000 operators that read as many inputs and numbers") {
  const dynamic::mesh m({{"x", 2}});
  constexpr int count = 17'000;
  dynamic::builder b(m);
  std::vector<std::vector<float>> data;
  std::vector<const void*> pointers;
  value h;
  for (int i = 0; i < count; ++i) {
    const auto x = b.input(dynamic::input<float>({3}, {"x"}));
    h = i == 0 ? x : (h + x) * (i % 2 == 0 ? 2.0 : 0.5);
    data.push_back({static_cast<float>(i % 8), 1, static_cast<float>(-(i % 3))});
  }
  for (const auto& d : data) pointers.push_back(d.data());
  b.output(h);
  const auto program = b.compile();
  check_loops(program, 2);
  const auto result = program.run(threads{}, pointers);
  for (std::size_t e = 0; e < 3; ++e) {
    float y = data[0][e];
    for (std::size_t i = 1; i < data.size(); ++i) y = (y + data[i][e]) * (i % 2 == 0 ? 2.0F : 0.5F);
    CHECK(result[0].data<float>()[e] == y);
  }
}

TEST_CASE("20,000 outputs of one loop") {
  const dynamic::mesh m({{"x", 2}});
  constexpr int count = 20'000;
  dynamic::builder b(m);
  const auto x = b.input(dynamic::input<std::int32_t>({5}, {"x"}));
  const auto h = x * x;
  for (int i = 0; i < count; ++i) b.output(h + i);
  const auto program = b.compile();
  check_loops(program, 2);
  const std::vector<std::int32_t> data{1, -2, 3, 0, 5};
  const auto result = program.run(simulated{}, data);
  bool holds = result.size() == count;
  for (std::size_t i = 0; i < result.size(); ++i)
    for (std::size_t e = 0; e < 5; ++e)
      holds = holds && result[i].data<std::int32_t>()[e] == data[e] * data[e] + static_cast<std::int32_t>(i);
  CHECK(holds);
}

TEST_CASE("60,000 operators whose loops need each other: reshapes between them") {
  const dynamic::mesh m({{"x", 2}});
  constexpr int length = 30'000;
  dynamic::builder b(m);
  const auto x = b.input(dynamic::input<std::int64_t>({2, 3}));
  value h = x;
  for (int i = 0; i < length; ++i)
    h = reshape(h + 1, i % 2 == 0 ? std::initializer_list<std::int64_t>{6} : std::initializer_list<std::int64_t>{2, 3});
  b.output(h);
  const auto program = b.compile();
  const std::vector<std::int64_t> data{1, 2, 3, 4, 5, 6};
  const auto result = program.run(simulated{}, data);
  for (std::size_t e = 0; e < 6; ++e) CHECK(result[0].data<std::int64_t>()[e] == data[e] + length);
}
