// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: planner
// Transposes that an all_to_all includes: before it, after it, and transposes that remain separate steps.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/random_program.hpp"
#include "support/run_graph.hpp"

using namespace layouts;

namespace {

const sharding rows_of_two = split({{0}, {}}), columns_of_two = split({{}, {0}});

/// The transposes of a plan, by how they are done.
struct transposes {
  int apart = 0, on_the_way = 0;
  std::int64_t arena = 0;

  explicit transposes(const graph_builder& b) {
    const auto p = plan_at_run_time(b.g, b.mesh, b.request);
    for (const auto& s : p.steps) {
      apart += is<kernels::permute>(s) ? 1 : 0;
      const auto& from = p.values[static_cast<std::size_t>(p.slots[static_cast<std::size_t>(s.operands.begin)])];
      if (!from.order.empty()) {
        CHECK(s.collective == collective_kind::all_to_all);
        ++on_the_way;
      }
    }
    arena = p.arena_bytes;
  }
};

/// f32 [48,32] by rows on four, transposed and by rows again.
struct on_four : graph_builder {
  int x, turned, brought;

  explicit on_four(bool is_first) : graph_builder({4}) {
    x = input({48, 32}, rows_of_two);
    turned = transpose(is_first ? x : reshard(x, columns_of_two), {1, 0});
    brought = is_first ? reshard(turned, rows_of_two) : turned;
    g.outputs.push_back(is_first ? brought : reshard(brought, rows_of_two));
  }
};

sharding any(reference::random_numbers& random, const mesh_shape& mesh, int rank) {
  sharding s;
  for (int axis = 0; axis < mesh.axis_count(); ++axis)
    if (const int dim = random.between(-1, rank - 1); dim >= 0) s.add_split(axis, dim);
  return s;
}

}  // namespace

TEST_CASE("a transpose before or behind an all_to_all is no step, and what it would make is nowhere") {
  for (const bool is_first : {true, false}) {
    const on_four b(is_first);
    const transposes found(b);
    CHECK(found.apart == 0);
    CHECK(found.on_the_way == 1);
    CHECK(found.arena == 0);
    CHECK(wrong_run(b) == "");
  }
}

TEST_CASE("a transpose stays a step where others read what it makes, or what it is made of was brought for others too") {
  on_four read(true), kept(false), checked(true);
  read.g.outputs.push_back(read.op(code_of<negative_op>, read.turned));
  kept.g.outputs.push_back(kept.op(code_of<negative_op>, kept.at(kept.turned).operands[0]));
  checked.request.is_checked = true;
  for (const auto* b : {&read, &kept, &checked}) {
    const transposes found(*b);
    CHECK(found.apart == 1);
    CHECK(found.on_the_way == 0);
    CHECK(wrong_run(*b) == "");
  }
}

TEST_CASE("a transpose stays a step where a loop that is there already reads what it is made of") {
  for (const bool is_product : {true, false}) {
    graph_builder b({4});
    const int x = b.input({48, 32}, rows_of_two), w = b.input({48, 8}), brought = b.reshard(x, columns_of_two);
    const int negated = b.op(code_of<negative_op>, brought);
    b.g.outputs.push_back(is_product ? b.einsum("ab,ac->bc", negated, w) : b.transpose(negated, {1, 0}));
    b.g.outputs.push_back(b.transpose(brought, {1, 0}));
    CHECK(transposes(b).on_the_way == 0);
    CHECK(wrong_run(b) == "");
  }
}

TEST_CASE("random transposes and reshards of up to four dims, one behind the other or beside it") {
  reference::random_numbers random(31);
  int on_the_way = 0, apart = 0;
  for (int k = 0; k < 400; ++k) {
    graph_builder b(random.one_of(std::vector<std::vector<int>>{{2}, {3}, {2, 2}, {2, 1, 3}}));
    const int rank = random.between(2, 4);
    std::vector<std::int64_t> shape;
    for (int d = 0; d < rank; ++d) shape.push_back(random.one_of(std::vector<std::int64_t>{1, 2, 3, 5, 8}));
    int x = b.input(shape, any(random, b.mesh, rank));
    std::vector<int> made{x};
    for (int n = random.between(2, 7); n > 0; --n) {
      if (random.chance(30)) x = made[made.size() - 1 - static_cast<std::size_t>(random.between(0, made.size() > 2 ? 2 : 0))];
      std::vector<int> permutation(static_cast<std::size_t>(rank));
      std::iota(permutation.begin(), permutation.end(), 0);
      for (int d = rank - 1; d > 0; --d)
        std::swap(permutation[static_cast<std::size_t>(d)], permutation[static_cast<std::size_t>(random.between(0, d))]);
      if (random.chance(60)) x = b.reshard(x, any(random, b.mesh, rank));
      if (random.chance(70)) x = b.transpose(x, permutation);
      if (random.chance(20)) x = b.op(code_of<negative_op>, x);
      if (random.chance(15)) b.g.outputs.push_back(b.reduce(x, 1));
      made.push_back(x);
      if (random.chance(15)) b.g.outputs.push_back(x);
    }
    b.g.outputs.push_back(random.chance(50) ? b.reshard(x, any(random, b.mesh, rank)) : x);
    const transposes found(b);
    on_the_way += found.on_the_way;
    apart += found.apart;
    const auto wrong = wrong_run(b);
    CHECK_MESSAGE(wrong == "", "program " << k);
  }
  MESSAGE("on the way: " << on_the_way << ", apart: " << apart);
  CHECK(on_the_way > 50);
  CHECK(apart > 50);
}
