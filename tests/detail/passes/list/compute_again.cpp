// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: random
// Values that are recomputed, or gathered again, if a device holds too much; and the order of steps with blocks of
// rows.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/comm/threads.hpp"
#include "gspmd/detail/passes/carried/next_values.hpp"
#include "gspmd/detail/passes/list/compute_again.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"
#include "gspmd/report/memory.hpp"
#include "support/run_random_on_threads.hpp"

namespace {

using namespace gspmd;
namespace ir = gspmd::detail;

/// Returns all elements of all outputs, one after the other.
std::vector<float> outputs_of(const dynamic::program& p) {
  std::vector<std::vector<float>> inputs;
  std::vector<const void*> pointers;
  for (std::size_t k = 0; k < p.view().inputs.size(); ++k) {
    std::size_t count = 1;
    for (const auto e : p.input(k).global_shape()) count *= static_cast<std::size_t>(e);
    inputs.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) inputs.back()[i] = std::sin(0.37F * static_cast<float>((i % 9973 + 1) * (k + 1)));
    pointers.push_back(inputs.back().data());
  }
  std::vector<float> elements;
  for (const auto& result : p.run(threads{}, pointers))
    elements.insert(elements.end(), result.data<float>(), result.data<float>() + result.bytes.size() / 4);
  return elements;
}

int operators_called(const dynamic::program& p, std::string_view name) {
  int count = 0;
  for (const auto& o : p.operators()) count += o.name == name ? 1 : 0;
  return count;
}

/// A program with a value that is read at the begin and at the end. In between, `make` computes a peak with the same
/// number of elements.
dynamic::builder with_peak(const dynamic::mesh& m, value (*make)(value x), std::int64_t rows = 96, std::int64_t width = 64) {
  dynamic::builder b(m);
  const value x = b.input(dynamic::input<float>({rows, width}, {"x", ""})), w = b.input(dynamic::input<float>({width, width}));
  const value early = make(x);
  value y = einsum<"ab,bc->ac">(early, w);
  for (int k = 0; k < 3; ++k) y = y + tanh(einsum<"ab,bc->ac">(y, w));
  b.output(y * early);
  return b;
}
value chain(value x) { return tanh(cos(x) * 2.0 + 1.0); }
value norm(value x) { return x * broadcast_in_dim(rsqrt(mean(x * x, 1) + 1e-5), {x.shape()[0], x.shape()[1]}, {0}); }
value mask(value x) { return where(x > 0.25, x, x * 0.125); }

}  // namespace

TEST_CASE("a value that lives long and is cheap is computed again where a device holds too much, with the same bits") {
  for (const int devices : {1, 2, 5})
    for (const auto make : {chain, norm, mask})
      for (const std::int64_t rows : {96, 97}) {
        CAPTURE(devices);
        CAPTURE(rows);
        const dynamic::mesh m({{"x", devices}});
        const auto freely = with_peak(m, make, rows).compile();
        const auto held = freely.peak_bytes_per_device();
        const auto shard = (rows + devices - 1) / devices * 64 * 4;
        const auto less = with_peak(m.with({.memory = held - shard / 2}), make, rows).compile();
        CHECK(less.peak_bytes_per_device() <= held - shard / 2);
        CHECK(less.traffic().bytes == freely.traffic().bytes);
        CHECK(less.flops_per_device() > freely.flops_per_device());
        CHECK(less.flops_per_device() < freely.flops_per_device() + 8 * shard);
        CHECK(operators_called(less, "einsum") == operators_called(freely, "einsum"));
        CHECK(outputs_of(freely) == outputs_of(less));
      }
}

TEST_CASE("a transpose that is read early and late, however often it is written, is made again where a device holds too much") {
  const auto make = [](const dynamic::mesh& m, std::int64_t rows) {
    dynamic::builder b(m);
    const value x = b.input(dynamic::input<float>({rows, 64}, {"x", ""})), w = b.input(dynamic::input<float>({64, 64}));
    const auto flipped = [&] { return transpose(x, {1, 0}); };
    value y = einsum<"cd,ca->da">(w, flipped());
    for (int k = 0; k < 3; ++k) y = y + tanh(einsum<"cd,ca->da">(w, y));
    b.output(y * flipped());
    return b;
  };
  for (const int devices : {1, 2, 5})
    for (const std::int64_t rows : {96, 97}) {
      CAPTURE(devices);
      CAPTURE(rows);
      const dynamic::mesh m({{"x", devices}});
      const auto freely = make(m, rows).compile();
      const auto held = freely.peak_bytes_per_device(), shard = (rows + devices - 1) / devices * 64 * 4;
      const auto less = make(m.with({.memory = held - shard / 2}), rows).compile();
      CHECK(operators_called(freely, "transpose") == 1);
      CHECK(operators_called(less, "transpose") == 2);
      CHECK(less.peak_bytes_per_device() <= held - shard / 2);
      CHECK(less.traffic().bytes == freely.traffic().bytes);
      CHECK(operators_called(less, "einsum") == operators_called(freely, "einsum"));
      CHECK(outputs_of(freely) == outputs_of(less));
    }
}

TEST_CASE("what was gathered is gathered again where a device holds too much, and what a byte cost is told") {
  const auto make = [](const dynamic::mesh& m) {
    dynamic::builder b(m);
    const auto input = [&](std::int64_t rows, std::int64_t columns, const char* axis) {
      return b.input(dynamic::input<float>({rows, columns}, {axis, ""}));
    };
    const value q = input(1024, 256, "x"), keys = tanh(input(16, 256, "x")), w = input(16, 1024, ""), v = input(1024, 16, "");
    value y = einsum<"ab,cb->ac">(q, keys);  // all keys on each device
    y = tanh(einsum<"ac,ce->ae">(y, input(16, 16, "")));
    y = einsum<"ad,dc->ac">(tanh(einsum<"ac,cd->ad">(y, w)), v);
    b.output(einsum<"ac,cb->ab">(y, keys));
    return b;
  };
  const dynamic::mesh m({{"x", 4}});
  const auto freely = make(m).compile();
  const std::int64_t keys = 16 * 256 * 4, limit = freely.peak_bytes_per_device() - keys / 2;
  CHECK(freely.traffic().bytes == keys / 4 * 3);
  const dynamic::inspection less(make(m.with({.memory = limit})));
  CHECK(less.program().peak_bytes_per_device() <= limit);
  CHECK(less.program().traffic().bytes == 2 * (keys / 4 * 3));
  CHECK(outputs_of(freely) == outputs_of(less.program()));
  const auto text = explain_memory(less);
  CHECK_MESSAGE(text.find("fewer than without a limit, for 475 ns more: ") != std::string::npos, text);
  CHECK_MESSAGE(text.find("values that are recomputed or gathered again for late users, 1:\n  value at "
                          "compute_again.cpp:") != std::string::npos,
                text);
  CHECK_MESSAGE(text.find(" a byte\n") != std::string::npos, text);
}

TEST_CASE("gradients of weights are made where their operands are, and not behind all that goes by rows") {
  const auto layers = [](int count, bool is_ordered) {
    const std::int64_t rows = 512, width = 768;
    dynamic::builder b(dynamic::mesh({{"x", 1}}));
    value h = b.input(dynamic::input<float>({rows, width}));
    std::vector<value> weights;
    for (int k = 0; k < count; ++k) {
      weights.push_back(b.input(dynamic::input<float>({width, width})));
      h = softmax(einsum<"ab,bc->ac">(h, weights.back()), 1);
    }
    const auto gradients = grad(sum(h * h), weights);
    for (std::size_t k = 0; k < weights.size(); ++k) b.output(weights[k] - 0.1 * gradients[k]);
    const auto g = b.canonical_graph();
    const auto& shape = b.mesh().info().shape;
    auto made = std::make_shared<const ir::plan>(is_ordered ? ir::plan_again(g, shape, {})
                                                            : ir::plan_again<ir::without<ir::order_pass>>(g, shape, {}));
    return dynamic::program(b.mesh(), made, b.functions());
  };
  const auto ordered = layers(6, true), as_written = layers(6, false);
  int by_rows = 0;
  for (const auto& s : ordered.view().steps) by_rows += ir::is<ir::kernels::rows_begin>(s) ? 1 : 0;
  CHECK(by_rows >= 6);
  const std::int64_t rows = 512 * 768 * 4;
  CHECK(as_written.view().arena_bytes > ordered.view().arena_bytes + 3 * rows);
  // Each layer keeps its result, and gradients exist for one layer at a time.
  CHECK(ordered.view().arena_bytes < (6 + 4) * rows);
  CHECK(outputs_of(ordered) == outputs_of(as_written));
}

TEST_CASE("random programs that compute values again equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1), count = reference::programs(10000);
  std::uint64_t rewritten = 0, fitted = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const reference::random_program program(seed);
    gspmd::simulated_communicator comm(program.device_count());
    const auto check = [&](const ir::plan& p) {
      const auto wrong = reference::run_and_check(comm, program, ir::plan_view(p));
      if (!wrong.empty()) FAIL_CHECK(wrong);
    };
    ir::plan_request request;
    const auto freely = ir::plan_once(program.g, program.mesh, request);
    request.most_memory = ir::peak_bytes(ir::plan_view(freely)) - 1;
    const auto all = ir::value_saver(program.g, freely, program.mesh, request).run(-1);
    if (!all) continue;
    ++rewritten;
    check(ir::plan_once(*all, program.mesh, request));
    ir::plan best;
    best.broken = ir::mistake::memory;
    std::optional<ir::graph> again;
    ir::compute_again(best, program.g, program.mesh, request, again);
    if (best.broken != ir::mistake::none) continue;
    ++fitted;
    CHECK(ir::peak_bytes(ir::plan_view(best)) <= request.most_memory);
    check(best);
  }
  std::printf("computed again: %d of %d programs, of which %d hold less\n", static_cast<int>(rewritten), static_cast<int>(count),
              static_cast<int>(fitted));
  CHECK(rewritten > count / 500);
  CHECK(fitted > 0);
}

namespace {
/// Returns the program with states: each input without annotation and an output of its type and shape become a state
/// and its next value. Returns nothing if no such pair exists.
std::optional<ir::graph> with_states(const reference::random_program& program, bool are_marked = true) {
  ir::graph g = program.g;
  std::vector<bool> is_taken(g.outputs.size());
  bool any = false;
  for (std::size_t k = 0; k < g.inputs.size(); ++k) {
    ir::node& input = g.nodes[static_cast<std::size_t>(g.inputs[k])];
    if (input.annotated && input.annotation.layout.partial != 0) continue;  // given as partial values
    for (std::size_t o = 0; o < g.outputs.size(); ++o) {
      const ir::node& n = g.nodes[static_cast<std::size_t>(g.outputs[o])];
      if (is_taken[o] || n.type != input.type || !(n.shape == input.shape)) continue;
      is_taken[o] = any = true;
      input.annotated = false;
      input.annotation = {};
      if (are_marked) g.outputs[o] = ir::add_update(g, g.outputs[o], static_cast<std::int64_t>(k), {});
      break;
    }
  }
  if (!any) return std::nullopt;
  if (are_marked) ir::place_next_values(g, ir::complete_graph(g, program.mesh, {}));
  return g;
}
/// Returns the plan of a run-time program.
ir::plan plan_within(const ir::graph& g, const ir::mesh_shape& mesh, std::int64_t most_memory) {
  ir::plan_request request;
  request.most_memory = most_memory;
  ir::plan made = ir::plan_at_run_time(g, mesh, request);
  std::optional<ir::graph> again;
  ir::compute_again(made, g, mesh, request, again);
  return made;
}
}  // namespace

TEST_CASE("random programs with states under limits of memory equal the naive reference, and their states lie as before") {
  const auto first = reference::setting("GSPMD_SEED", 1), count = reference::programs(600);
  int fitted = 0, split = 0, moved = 0, refused = 0, refused_for_states = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    CAPTURE(seed);
    const reference::random_program program(seed);
    const auto g = with_states(program);
    if (!g) continue;
    const ir::plan freely = ir::plan_at_run_time(*g, program.mesh, {});
    if (freely.broken != ir::mistake::none) continue;
    const auto held = ir::peak_bytes(ir::plan_view(freely));
    for (const auto percent : {90, 50, 20}) {
      const auto most = std::max<std::int64_t>(held * percent / 100, 1);
      const ir::plan made = plan_within(*g, program.mesh, most);
      if (made.broken != ir::mistake::none) {
        CHECK_MESSAGE(made.broken == ir::mistake::memory, made.error.view());
        ++refused;
        refused_for_states += plan_within(*with_states(program, false), program.mesh, most).broken == ir::mistake::none ? 1 : 0;
        continue;
      }
      ++fitted;
      moved += ir::saving_level(made.saving) == ir::most_saving ? 1 : 0;
      const ir::plan_view view(made);
      CHECK(ir::peak_bytes(view) <= most);
      for (std::size_t o = 0; o < g->outputs.size(); ++o)
        if (const ir::node& n = g->nodes[static_cast<std::size_t>(g->outputs[o])]; ir::update_mark::is_on(n)) {
          const auto input = static_cast<std::size_t>(ir::update_mark::of(n).input);
          const auto before = view.value(view.inputs[input]), after = view.value(view.outputs[o]);
          CHECK(before.layout == after.layout);
          split += before.layout == freely.values[freely.inputs[static_cast<int>(input)]].layout ? 0 : 1;
        }
      const auto wrong = reference::run_and_check_on_threads(program, view);
      if (!wrong.empty()) FAIL_CHECK(wrong);
    }
  }
  std::printf(
      "states under limits: %d plans fit, %d states split for it, %d plans with states as they are computed; %d do not, of which "
      "%d would without states\n",
      fitted, split, moved, refused, refused_for_states);
  CHECK(moved > 0);
  CHECK(fitted > 0);
  CHECK(split > 0);
}
