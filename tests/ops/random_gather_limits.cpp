// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads
// group: random
#include <doctest/doctest.h>

#include <cstdio>

#include "gspmd/comm/simulated.hpp"
#include "support/run_random_on_threads.hpp"

// Programs whose einsums must not gather operands above some size: the operands rotate around rings of devices.
// GSPMD_SEED and GSPMD_PROGRAMS select the programs and their number.

namespace {
struct counts {
  std::uint64_t refused = 0, windows = 0, both_ways = 0, in_loops = 0, several_axes = 0, sums = 0, copied = 0, uneven = 0;
  std::uint64_t by_members[17]{};

  void add(const gspmd::detail::plan_view& plan) {
    for (const auto& s : plan.steps) {
      if (!gspmd::detail::is<gspmd::detail::kernels::contract_round_ring>(s)) continue;
      const auto& w = planned_ring_of(plan, s);
      ++windows;
      both_ways += w.both_ways ? 1 : 0;
      in_loops += s.times > 1 ? 1 : 0;
      several_axes += w.axes.count > 1 ? 1 : 0;
      sums += w.dims[2] < 0 ? 1 : 0;
      copied += w.operand_at >= 0 || w.result_at >= 0 ? 1 : 0;
      const auto& v = plan.operand(s, w.operand);
      const int d = w.dims[w.operand];
      uneven += v.local[d] * parts_of(*plan.mesh, v.layout, d) != v.global[d] ? 1 : 0;
      ++by_members[ring_of(plan, s).size(*plan.mesh)];
    }
  }
};

reference::random_options options() {
  reference::random_options o;
  o.limit_gathers = true;
  o.einsums = 60;
  o.min_operators = 2;
  o.max_operators = 8;
  return o;
}

/// A program with names for its axes, which refusals tell.
struct named_program : reference::random_program {
  explicit named_program(std::uint64_t seed_value) : random_program(seed_value, options()) {
    for (int a = 0; a < mesh.axis_count(); ++a) info.add_axis(std::string(1, static_cast<char>('x' + a)), mesh.sizes[a]);
    g.mesh = &info;
  }
  gspmd::detail::mesh_info info;
};
}  // namespace

TEST_CASE("random programs with limits on gathers equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000);
  counts total;
  for (auto seed = first; seed < first + count; ++seed) {
    const named_program program(seed);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    if (!plan.error.empty()) {
      CHECK(plan.broken == gspmd::detail::mistake::gather_limit);
      ++total.refused;
      continue;
    }
    const gspmd::detail::plan_view view(plan);
    total.add(view);
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
  }
  std::printf(
      "random windows: seeds %llu to %llu: %llu refused, %llu einsums round a ring, %llu of them both ways, %llu in loops, "
      "%llu over several axes, %llu add up, %llu copy parts, %llu uneven; by devices:",
      static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
      static_cast<unsigned long long>(total.refused), static_cast<unsigned long long>(total.windows),
      static_cast<unsigned long long>(total.both_ways), static_cast<unsigned long long>(total.in_loops),
      static_cast<unsigned long long>(total.several_axes), static_cast<unsigned long long>(total.sums),
      static_cast<unsigned long long>(total.copied), static_cast<unsigned long long>(total.uneven));
  for (int n = 2; n <= 16; ++n) std::printf(" %d:%llu", n, static_cast<unsigned long long>(total.by_members[n]));
  std::printf("\n");
  CHECK(total.windows > count / 20);
}

TEST_CASE("random programs with limits on gathers, on threads") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000) / 5;
  for (auto seed = first; seed < first + count; ++seed) {
    const named_program program(seed);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    const gspmd::detail::plan_view view(plan);
    counts total;
    if (plan.error.empty()) total.add(view);
    if (total.windows == 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
}
