// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
// Reshards that are written before an operator and cost less after it: sums, differences, scalings and slices of
// resharded values.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gspmd/detail/passes/rewrite/defer_reshards.hpp"
#include "support/run_graph.hpp"

using namespace layouts;

namespace {

const sharding whole{}, by_rows = split({{0}, {}}), by_columns = split({{}, {0}});
constexpr std::int64_t all = 64 * 32 * 4, three_quarters = all * 3 / 4;  // bytes of f32 [64,32]; bytes that an all_gather
                                                                         // over 4 sends

/// A program on four devices, over values of f32 [64,32].
struct on_four : graph_builder {
  on_four() : graph_builder({4}) {}
  int rows() { return input({64, 32}, by_rows); }
  /// Partial until it is reduced.
  int product() { return einsum("ab,bc->ac", input({64, 512}, by_columns), input({512, 32}, by_rows)); }
  int scaled(int a, double by) { return op(code_of<multiply_op>, a, constant({64, 32}, by)); }
  int sum(int a, int b) { return op(code_of<add_op>, a, b); }
  int slice(int a, const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
    return add_slice(g, a, from, to, std::vector<std::int64_t>(from.size(), 1), {});
  }
};
/// Returns the bytes that the plan sends, after checking its results.
std::int64_t bytes_of_plan(on_four& b, const std::vector<int>& outputs) {
  b.g.outputs.clear();
  for (const int o : outputs) b.g.outputs.push_back(o);
  defer_reshards(b.g);
  CHECK(wrong_run(b) == "");
  return bytes_sent(b.mesh, b.partition());
}

/// Values of equal shape. Many are resharded before they are used or sliced.
struct random_reshards : graph_builder {
  random_reshards(const std::vector<int>& sizes, unsigned seed) : graph_builder(sizes), random_(seed) {
    const auto shape = random_.one_of(std::vector<std::vector<std::int64_t>>{{16, 8}, {7, 5}, {4, 32}});
    for (int k = 0; k < 2; ++k) targets_.push_back(any(2));
    std::vector<int> values;
    for (int k = random_.between(2, 3); k > 0; --k) values.push_back(input(shape, any(2)));
    const std::int64_t depth = random_.chance(50) ? 64 : 3;
    for (int k = random_.between(1, 3); k > 0; --k)
      values.push_back(einsum("ab,bc->ac", input({shape[0], depth}, any(2)), input({depth, shape[1]}, any(2))));
    for (int k = random_.between(2, 6); k > 0; --k) {
      const auto kind = random_.between(0, 4);
      const int a = resharded(random_.one_of(values), 0);
      if (kind == 0) values.push_back(op(code_of<negative_op>, a));
      else if (kind == 1) values.push_back(op(code_of<multiply_op>, a, constant(shape, random_.between(-2, 2))));
      else values.push_back(op(random_.one_of(joins()), a, resharded(random_.one_of(values), random_.chance(70) ? 0 : 1)));
    }
    for (int k = random_.between(0, 2); k > 0; --k) {
      const int cut = resharded(random_.one_of(values), 0), dim = random_.between(0, 1);
      for (int part = random_.between(1, 2); part > 0; --part) {
        const std::vector<std::int64_t> ones(2, 1);
        std::vector<std::int64_t> from(2, 0), to = shape;
        from[static_cast<std::size_t>(dim)] = random_.between(0, 2);
        to[static_cast<std::size_t>(dim)] = random_.between(3, static_cast<int>(shape[static_cast<std::size_t>(dim)]));
        g.outputs.push_back(add_slice(g, cut, from, to, ones, {}));
      }
    }
    g.outputs.push_back(random_.chance(50) ? values.back() : reshard(values.back(), any(2)));
    request.network.one_switch.per_kib = std::int64_t{1} << 50;
  }

 private:
  static std::vector<operator_code> joins() {
    return {code_of<add_op>, code_of<subtract_op>, code_of<max_op>, code_of<multiply_op>};
  }
  int resharded(int i, std::size_t target) { return random_.chance(75) ? reshard(i, targets_[target]) : i; }
  sharding any(int rank) {
    sharding a;
    for (int axis = 0; axis < mesh.axis_count(); ++axis)
      if (const int dim = random_.between(-1, rank - 1); dim >= 0) a.add_split(axis, dim);
    return a;
  }
  reference::random_numbers random_;
  std::vector<sharding> targets_;
};

}  // namespace

TEST_CASE("a sum of gathers is a gather of a sum, whatever each term is multiplied by") {
  on_four two, scaled, other, wide;
  CHECK(bytes_of_plan(two, {two.sum(two.reshard(two.rows(), whole), two.reshard(two.rows(), whole))}) == three_quarters);
  const int a = scaled.scaled(scaled.reshard(scaled.rows(), whole), 2), b = scaled.reshard(scaled.rows(), whole);
  CHECK(bytes_of_plan(scaled, {scaled.op(code_of<subtract_op>, a, scaled.scaled(b, -0.5))}) == three_quarters);
  // Terms with two shardings: one is moved to the sharding of the other.
  const int columns = other.input({64, 32}, by_columns);
  CHECK(bytes_of_plan(other, {other.sum(other.reshard(other.rows(), whole), other.reshard(columns, whole))}) ==
        three_quarters + three_quarters / 4);
  int terms = wide.reshard(wide.rows(), whole);
  for (int k = 0; k < 5; ++k) terms = wide.sum(terms, wide.reshard(wide.rows(), whole));
  CHECK(bytes_of_plan(wide, {terms}) == three_quarters);
}

TEST_CASE("sums that are annotated one by one are added up once") {
  for (const bool is_scaled : {false, true}) {
    on_four gathered, scattered;
    for (on_four* b : {&gathered, &scattered}) {
      int terms = -1;
      for (int k = 0; k < 3; ++k) {
        int term = b->reshard(b->product(), b == &gathered ? whole : by_rows);
        if (is_scaled) term = b->scaled(term, k + 2);
        terms = terms < 0 ? term : b->sum(terms, term);
      }
      CHECK(bytes_of_plan(*b, {terms}) == (b == &gathered ? 2 : 1) * three_quarters);
    }
  }
}

TEST_CASE("of a gather of which only slices are read, the slices are sent") {
  on_four one, two, parts;
  CHECK(bytes_of_plan(one, {one.slice(one.reshard(one.rows(), whole), {0, 0}, {64, 8})}) == three_quarters / 4);
  const int x = two.reshard(two.rows(), whole);
  CHECK(bytes_of_plan(two, {two.slice(x, {0, 0}, {64, 8}), two.slice(x, {0, 16}, {64, 24})}) == three_quarters / 2);
  const int y = parts.reshard(parts.rows(), whole);  // slices that together are the whole value
  CHECK(bytes_of_plan(parts, {parts.slice(y, {0, 0}, {64, 8}), parts.slice(y, {0, 8}, {64, 32})}) == three_quarters);
}

TEST_CASE(
    "a reshard stays where somebody else reads what it makes or what it is made of, or where it says otherwise than the others") {
  on_four output, read, others, fixed;
  const int a = output.reshard(output.rows(), whole);
  CHECK(bytes_of_plan(output, {output.sum(a, output.reshard(output.rows(), whole)), a}) == 2 * three_quarters);
  const int x = read.rows();
  CHECK(bytes_of_plan(read, {read.sum(read.reshard(x, whole), read.reshard(read.rows(), whole)),
                             read.op(code_of<negative_op>, x)}) == 2 * three_quarters);
  others.g.outputs = {others.sum(others.reshard(others.rows(), whole), others.reshard(others.rows(), by_columns))};
  defer_reshards(others.g);
  for (const auto& n : others.g.nodes) CHECK(!n.deferred);
  const int kept = fixed.sum(fixed.reshard(fixed.rows(), whole), fixed.reshard(fixed.rows(), whole));
  fixed.at(kept).forbid_reshard = true;
  CHECK(bytes_of_plan(fixed, {kept}) == 2 * three_quarters);
}

// Seeds 0 to 2,999 passed in a manual run.
TEST_CASE("random programs with reshards compute the same, and send no more") {
  int deferred = 0, fewer = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    const std::vector<std::vector<int>> meshes{{4}, {2, 2}, {3, 2}, {8}};
    random_reshards b(meshes[seed % meshes.size()], seed);
    const auto before = bytes_sent(b.mesh, b.partition());
    defer_reshards(b.g);
    for (const auto& n : b.g.nodes) deferred += n.deferred ? 1 : 0;
    const auto after = bytes_sent(b.mesh, b.partition());
    CAPTURE(seed);
    CHECK(after <= before);
    fewer += after < before ? 1 : 0;
    CHECK(wrong_run(b) == "");
  }
  CHECK(deferred > 50);
  CHECK(fewer > 5);
}
