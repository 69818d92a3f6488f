// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
// Plans of small random programs, compared with the best plans: values without annotation may have any sharding.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/exhaustive_plans.hpp"
#include "support/run_graph.hpp"

using namespace layouts;

namespace {
/// The comparison of plans of many programs with the best plans.
struct comparison {
  int programs = 0, equal = 0, close = 0;  // within 5 %
  double times = 0, worst = 1;             // relative to the best time: the sum, and the largest

  void add(std::int64_t time, std::int64_t least) {
    const double ratio = least == 0 ? 1 : static_cast<double>(time) / static_cast<double>(least);
    ++programs;
    equal += time == least ? 1 : 0;
    close += 20 * time <= 21 * least ? 1 : 0;
    times += ratio;
    worst = std::max(worst, ratio);
  }
  [[nodiscard]] double mean() const { return times / programs; }
};
}  // namespace

// Seeds 1 to 999 on each mesh, 5,994 programs, took 10 s in a manual run. If searched, 99.2 % are equal and 99.6 %
// within 5 %. Without joint changes of values and without users that pay for a sum, 98.9 and 99.4. The worst plan takes
// 1.22 times the best time (3x2, seed 447).
TEST_CASE("94 plans of 100 are the best there are, of those that are searched 99, and no simple rule does better") {
  comparison plain, searched;
  for (const auto& sizes : {std::vector<int>{2, 2}, {2, 4}, {3, 2}})
    for (const bool annotated : {false, true})
      for (unsigned seed = 0; seed < 36; ++seed) {
        const small_program p(sizes, 1000 + seed, 1 + static_cast<int>(seed) % 6, annotated);
        const auto time = p.planned_time(false), searched_time = p.planned_time(true);
        CHECK(searched_time <= time);
        CHECK(time <= p.time_of(p.complete()));
        for (const auto& simple : p.simple_shardings()) CHECK(time <= p.time_of(simple));
        const auto least = searched_time == 0 ? 0 : std::min(searched_time, p.least_time(2));
        plain.add(time, least);
        searched.add(searched_time, least);
      }
  CAPTURE(plain.equal);
  CAPTURE(plain.close);
  CAPTURE(plain.mean());
  CAPTURE(plain.worst);
  CAPTURE(searched.equal);
  CAPTURE(searched.close);
  CAPTURE(searched.mean());
  CAPTURE(searched.worst);
  CHECK(100 * plain.equal >= 94 * plain.programs);
  CHECK(100 * searched.equal >= 99 * searched.programs);
  CHECK(100 * searched.close >= 99 * searched.programs);
  CHECK(plain.mean() < 1.02);
  CHECK(plain.worst < 1.5);
  CHECK(searched.worst < 1.1);
}

TEST_CASE("a chain of products whose ends are small is computed where they are") {
  graph_builder b({4});
  const int w = b.input({1024, 1024}, split({{0}, {}}));
  const int first = b.einsum("ab,bc->ac", b.input({1024, 8}, split({{}, {0}})), b.input({8, 1024}, split({{}, {0}})));
  const int sum = b.op(code_of<add_op>, first, w);
  b.g.outputs = {b.annotate(sum, split({{0}, {}}))};
  const auto p = b.partition();
  // Completion splits the product by columns like its second operand. If the product is split by rows, all values that
  // move are smaller than the product.
  CHECK(bytes_sent(b.mesh, p) < 1024 * 1024 * 4 / 4 / 2);
}

TEST_CASE("a sum whose operands lie otherwise is made where less is sent, in whichever order they are written") {
  const auto sent = [](bool is_exchanged, int rows) {
    graph_builder b({4, 4});
    const int wide = b.input({rows, 2 * rows}, split({{}, {1}})), narrow = b.input({rows, 2 * rows}, split({{0, 1}, {}}));
    b.g.outputs = {is_exchanged ? b.op(code_of<add_op>, narrow, wide) : b.op(code_of<add_op>, wide, narrow)};
    return bytes_sent(b.mesh, b.partition());
  };
  for (const int rows : {2048, 256}) {
    CAPTURE(rows);
    CHECK(sent(false, rows) == sent(true, rows));
    CHECK(sent(false, rows) < rows * 2 * rows * 4 / 16);
  }
}

TEST_CASE("a result that completion splits nowhere lies as it is made, and is not gathered") {
  const auto planned = [](bool is_exchanged) {
    graph_builder b({4, 4});
    const int wide = b.input({1024, 1024}, split({{}, {0}})), narrow = b.input({1024, 1024}, split({{1, 0}, {}}));
    const int sum = is_exchanged ? b.op(code_of<add_op>, narrow, wide) : b.op(code_of<add_op>, wide, narrow);
    b.g.outputs = {b.einsum("ab,bc->ac", sum, narrow)};
    return bytes_sent(b.mesh, b.partition());
  };
  CHECK(planned(false) < 2 * 1024 * 1024);  // gathered, the result alone is 3.9 MB
  CHECK(planned(true) < 2 * 1024 * 1024);
}

namespace {
/// Returns the choices for a program with these preferred shardings. Each chooser processes `at_once` operators and
/// remembers nothing of earlier choosers. Adds the number of computed prices to `prices`.
choice_table chosen(const graph& g, const mesh_shape& mesh, gspmd::detail::span<const sharding> preferred, int at_once,
                    int& prices) {
  const auto uses = uses_of(g);
  const plan_request request;
  choose_state state(g);
  while (!state.is_complete) {
    chooser choices(g, mesh, request, uses, {preferred.data(), preferred.size()}, state);
    choices.run(at_once, std::numeric_limits<int>::max());
    prices += choices.prices();
  }
  return state.table;
}
bool equal(const choice_table& a, const choice_table& b) {
  const auto is_alike = [](const node_choice& x, const node_choice& y) {
    return x.result == y.result && x.forced == y.forced && x.moved == y.moved;
  };
  const auto same = [](const sharding& x, const sharding& y) { return x == y; };
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), is_alike) &&
         std::equal(a.wanted.begin(), a.wanted.end(), b.wanted.begin(), b.wanted.end(), same) &&
         std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(), same);
}
/// Returns `times` copies of the program, each with its own inputs.
graph repeated(const graph& g, int times) {
  graph all = g;
  const int count = static_cast<int>(g.nodes.size());
  for (int k = 1; k < times; ++k) {
    for (auto n : g.nodes) {
      for (auto& o : n.operands) o += k * count;
      if (n.region >= 0) n.region += k * count;
      all.nodes.push_back(n);
    }
    for (const int i : g.inputs) all.inputs.push_back(i + k * count);
    for (const int o : g.outputs) all.outputs.push_back(o + k * count);
  }
  return all;
}
}  // namespace

TEST_CASE("an operator that finds everything as an equal one found it gets what that got") {
  int prices = 0, prices_apart = 0;
  const auto check = [&](const graph& g, const mesh_shape& mesh) {
    const auto completed = complete_graph(g, mesh, {});
    const auto narrow = narrowed(g, mesh, uses_of(g), completed);
    const std::vector<sharding> preferred(narrow.begin(), narrow.end());
    return equal(chosen(g, mesh, preferred, std::numeric_limits<int>::max(), prices),
                 chosen(g, mesh, preferred, 1, prices_apart));
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const small_program p({2, 2 + static_cast<int>(seed % 3)}, seed, 1 + static_cast<int>(seed) % 6, seed % 2 == 0);
    CHECK(check(repeated(p.g, 4), p.mesh));
  }
  CHECK(10 * prices < 4 * prices_apart);  // of four equal programs, three compute no prices
  prices = prices_apart = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {  // operators of all kinds, loops and policies
    CAPTURE(seed);
    const reference::random_program p(seed);
    if (!p.g.has_regions) CHECK(check(repeated(p.g, 2), p.mesh));
    else CHECK(check(p.g, p.mesh));
  }
  CHECK(10 * prices < 9 * prices_apart);
}

TEST_CASE("what is searched for gives the same numbers") {
  for (unsigned seed = 0; seed < 24; ++seed) {
    small_program p({2, 2}, 1000 + seed, 1 + static_cast<int>(seed) % 6, seed % 2 == 0);
    p.request.is_searched = true;
    CHECK(wrong_run(p) == "");
  }
}
