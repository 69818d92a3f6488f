// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
// Random programs over all operators: for many examples together, and for each example alone.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gspmd/index.hpp"
#include "gspmd/ops.hpp"
#include "gspmd/transform/grad.hpp"
#include "gspmd/windows.hpp"
#include "support/many_examples.hpp"
#include "support/random_callable.hpp"
#include "support/run_random.hpp"

namespace {

using namespace reference;

random_options options_of(std::uint64_t seed) {
  random_options o;
  o.partial_inputs = false;
  o.permute_devices = false;
  o.max_devices = 8;
  o.annotate = seed % 2 == 0;
  o.lookups = seed % 5 == 0;
  o.maps = seed % 5 == 3;
  o.windows = seed % 5 == 4;
  o.shifts = seed % 7 == 1;
  o.stencils = seed % 11 == 2;
  return o;
}
/// Some of the inputs, one at least.
std::vector<bool> some_of(std::size_t count, random_numbers& random) {
  std::vector<bool> some;
  bool any = false;
  for (std::size_t k = 0; k < count; ++k) {
    some.push_back(random.chance(60));
    any = any || some.back();
  }
  if (!any) some[0] = true;
  return some;
}

}  // namespace

TEST_CASE("vmap: every operator does for many examples what it does for each") {
  std::set<std::string> met;
  for (std::uint64_t seed = 0; seed < programs(400); ++seed) {
    const random_program p(seed, options_of(seed));
    random_numbers random(seed * 77 + 5);
    const auto mapped = some_of(p.g.inputs.size(), random);
    const auto n = static_cast<std::size_t>(random.between(1, 4));
    INFO(p.describe());
    const mapped_program m(p.g, {1}, mapped, n, p.inputs);
    REQUIRE(m.mistake == "");
    for (const auto& node : ir::canonical_order(m.program.g).nodes) met.insert(ir::name_of(node.op));
    const auto got = outputs_of(m.program.g, m.program.inputs), want = one_by_one(p.g, mapped, n, p.inputs);
    REQUIRE(got.size() == want.size());
    for (std::size_t k = 0; k < want.size(); ++k) CHECK(unlike(got[k], want[k], 1e-6) == "");
  }
  if (programs(400) >= 400)
    for (const auto* name : {"add_row",     "broadcast_in_dim",
                             "concatenate", "convolution",
                             "einsum",      "gather",
                             "pad",         "reduce",
                             "loop",        "branch",
                             "reshape",     "reduce_window",
                             "reshard",     "flip",
                             "roll",        "row",
                             "scatter",     "scan_along",
                             "scatter_set", "set_row",
                             "shard_alike", "shift",
                             "slice",       "select_and_scatter",
                             "sort",        "top_k",
                             "transpose",   "where",
                             "map"}) {
      CAPTURE(name);
      CHECK(met.count(name) == 1);
    }
}

TEST_CASE("vmap: planned for several devices, any dim split, with annotations for one example") {
  for (std::uint64_t seed = 0; seed < programs(150); ++seed) {
    const random_program p(seed, options_of(seed));
    random_numbers random(seed * 77 + 5);
    const auto mapped = some_of(p.g.inputs.size(), random);
    const auto n = static_cast<std::size_t>(random.between(1, 5));
    bool is_complex = false;  // whose parts `partitioned_run` does not read
    for (const auto& node : p.g.nodes) is_complex = is_complex || ir::is_complex(node.type);
    const std::vector<int> sizes(p.mesh.sizes.begin(), p.mesh.sizes.end());
    if (is_complex || sizes.size() > 4) continue;
    INFO(p.describe());
    mapped_program m(p.g, sizes, mapped, n, p.inputs);
    REQUIRE(m.mistake == "");
    for (const int i : m.program.g.inputs) {
      auto& in = m.program.g.nodes[static_cast<std::size_t>(i)];
      if (in.annotated || in.shape.count == 0 || !random.chance(60)) continue;
      in.annotated = true;
      in.annotation.open = ~ir::dim_mask{0};
      in.annotation.layout.add_split(random.between(0, static_cast<int>(sizes.size()) - 1), 0);
    }
    const partitioned_run run(m.program);
    REQUIRE(run.wrong == "");
    const auto want = outputs_of(m.program.g, m.program.inputs);
    for (std::size_t k = 0; k < want.size(); ++k) {
      const bool is_narrow = want[k].type == dtype::bf16 || want[k].type == dtype::f16;
      const double part = p.tolerance(p.g.outputs[k]) == 0 ? 1e-6 : is_narrow ? 0.05 : 1e-3;
      CHECK(unlike(run.outputs[k], want[k], part) == "");
    }
  }
}

TEST_CASE("vmap: of random callables with loops, conditionals and gradients") {
  using gspmd::not_mapped;
  using gspmd::value;
  for (unsigned seed = 0; seed < programs(150); ++seed) {
    CAPTURE(seed);
    random_numbers random(seed * 77 + 5);
    const auto extent = [&] { return static_cast<std::int64_t>(random.between(1, 4)); };
    traced one(std::vector<int>{2, 2}), many(std::vector<int>{2, 2});
    std::vector<value> alone, in;
    for (int k = 0; k < 3; ++k) {
      const std::int64_t rows = extent(), columns = extent();
      alone.push_back(one.input(reals({rows, columns}, -1, 1, static_cast<int>(seed) * 3 + k + 1)));
    }
    for (const value v : random_callables::traced_results(seed, alone[0], alone[1], alone[2])) one.output(v);
    REQUIRE(one.g.error.empty());
    const auto n = static_cast<std::size_t>(random.between(1, 4));
    const auto mapped = some_of(3, random);
    for (std::size_t k = 0; k < 3; ++k) {
      std::vector<host_array> rows;
      for (std::size_t e = 0; e < n; ++e) rows.push_back(turned(one.inputs[k], e));
      in.push_back(many.input(mapped[k] ? stacked(rows) : one.inputs[k]));
      auto& node = many.g.nodes.back();
      node.annotated = random.chance(70);
      node.annotation = random_sharding(many.mesh.shape, node.shape.count, random);
    }
    const auto f = [&](value a, value b, value c) { return random_callables::traced_results(seed, a, b, c); };
    const auto results = [&] {
      if (mapped[0] && mapped[1] && mapped[2]) return gspmd::vmap(f)(in[0], in[1], in[2]);
      if (mapped[0] && mapped[1]) return gspmd::vmap<0, 0, not_mapped>(f)(in[0], in[1], in[2]);
      if (mapped[0] && mapped[2]) return gspmd::vmap<0, not_mapped, 0>(f)(in[0], in[1], in[2]);
      if (mapped[1] && mapped[2]) return gspmd::vmap<not_mapped, 0, 0>(f)(in[0], in[1], in[2]);
      if (mapped[0]) return gspmd::vmap<0, not_mapped, not_mapped>(f)(in[0], in[1], in[2]);
      if (mapped[1]) return gspmd::vmap<not_mapped, 0, not_mapped>(f)(in[0], in[1], in[2]);
      return gspmd::vmap<not_mapped, not_mapped, 0>(f)(in[0], in[1], in[2]);
    }();
    for (const value v : results) many.output(v);
    REQUIRE(many.g.error.empty());
    const auto got = outputs_of(many.g, many.inputs), want = one_by_one(one.g, mapped, n, one.inputs);
    const partitioned_run run(many);
    REQUIRE(run.wrong == "");
    for (std::size_t k = 0; k < want.size(); ++k) {
      CAPTURE(k);
      CHECK(difference(got[k], want[k], 1e-9) == "");
      CHECK(difference(run.outputs[k], want[k], 1e-9) == "");
    }
  }
}
