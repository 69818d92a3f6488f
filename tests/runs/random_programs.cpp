// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive threads native
// timeout: 600
// slow: GSPMD_PROGRAMS sets the number of programs
// group: random
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/passes/order/hide_collectives.hpp"
#include "gspmd/detail/passes/refuse/try_operators.hpp"
#include "gspmd/detail/passes/rewrite/canonical.hpp"
#include "gspmd/detail/passes/solve/solve_plan.hpp"
#include "support/equal_plans.hpp"
#include "support/run_random_on_threads.hpp"

// The partitioned program equals the single-device one. GSPMD_SEED and GSPMD_PROGRAMS select the programs and their
// number.

TEST_CASE("random programs on simulated devices equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000);
  std::uint64_t collectives = 0, in_bodies = 0, large_meshes = 0, narrow = 0, started = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    gspmd::detail::plan_request request;
    if (seed % 8 == 3) request.saving = 1 + static_cast<int>(seed / 8 % 4);  // as if memory were short
    if (seed % 4 == 2) request.solve = gspmd::detail::solve_plan;
    if (seed % 8 == 5 || seed % 8 == 2)
      request.network.one_switch.per_kib = std::int64_t{1} << 40;  // bytes are expensive, so another plan is searched for
    if (seed % 8 == 1 || seed % 16 == 13) request.hide = gspmd::detail::hide_collectives;
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, request);
    const gspmd::detail::plan_view view(plan);
    for (const auto& s : plan.steps) {
      collectives += s.bytes_sent > 0 ? 1 : 0;
      in_bodies += s.bytes_sent > 0 && s.times > 1 ? 1 : 0;
      using namespace gspmd::detail::kernels;
      started += gspmd::detail::is<start_combine>(s) || gspmd::detail::is<start_move>(s) ? 1 : 0;
    }
    large_meshes += program.device_count() > 8 ? 1 : 0;
    bool has_narrow = false;  // or unsigned
    for (const auto& n : program.g.nodes) has_narrow = has_narrow || n.type > gspmd::dtype::pred;
    narrow += has_narrow ? 1 : 0;
    for (int i = 0; i < static_cast<int>(program.g.nodes.size()); ++i) {
      if (program.g.nodes[i].op.code != gspmd::detail::opcode::listed) continue;
      const auto facts = gspmd::detail::operator_trial(program.g, i).contradiction();
      if (!facts.empty()) FAIL_CHECK(gspmd::detail::name_of(program.g.nodes[i].op), ": ", std::string(facts.view()));
    }
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (!program.g.has_regions) continue;
    const auto ordered = gspmd::detail::plan_at_run_time(gspmd::detail::canonical_order(program.g), program.mesh, {});
    const auto wrong_in_order = reference::run_and_check(comm, program, gspmd::detail::plan_view(ordered));
    if (!wrong_in_order.empty()) FAIL_CHECK("in canonical order: ", wrong_in_order);
  }
  std::printf("random programs: seeds %llu to %llu, %llu collectives, %llu of them in loops, %llu on more than 8 devices\n",
              static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + count - 1),
              static_cast<unsigned long long>(collectives), static_cast<unsigned long long>(in_bodies),
              static_cast<unsigned long long>(large_meshes));
  CHECK(collectives > count / 4);
  CHECK(in_bodies > count / 50);
  CHECK(large_meshes > count / 5);
  CHECK(narrow > count / 20);
  CHECK(started > count / 20);
}

namespace {
/// Returns the program with every operator written twice, each copy with copies of its operands, and outputs from
/// second copies. Values that are computed where they are read (constants, broadcasts) are not copied, because their
/// copies are separate values anyway.
gspmd::detail::graph written_twice(const gspmd::detail::graph& g) {
  using gspmd::detail::origin;
  gspmd::detail::graph twice = g;
  twice.nodes.clear();
  std::vector<int> copies[2] = {std::vector<int>(g.nodes.size(), -1), std::vector<int>(g.nodes.size(), -1)};
  for (std::size_t i = 0; i < g.nodes.size(); i += static_cast<std::size_t>(g.nodes[i].results)) {
    const origin made = gspmd::detail::facts_of(g.nodes[i].op).made;
    const bool once = made == origin::given || made == origin::region || made == origin::source ||
                      gspmd::detail::facts_of(g.nodes[i].op).is_made_again(g.nodes[i]);
    for (auto& copy : copies) {
      for (std::size_t r = 0; r < static_cast<std::size_t>(g.nodes[i].results); ++r) {
        if (once && &copy == &copies[1]) {
          copy[i + r] = copies[0][i + r];
          continue;
        }
        auto n = g.nodes[i + r];
        for (auto& o : n.operands) o = copy[static_cast<std::size_t>(o)];
        if (n.region >= 0) n.region = copies[0][static_cast<std::size_t>(n.region)];
        copy[i + r] = static_cast<int>(twice.nodes.size());
        twice.nodes.push_back(n);
      }
    }
  }
  for (auto& i : twice.inputs) i = copies[0][static_cast<std::size_t>(i)];
  for (auto& o : twice.outputs) o = copies[1][static_cast<std::size_t>(o)];
  return twice;
}
}  // namespace

TEST_CASE("random programs in which every operator is written twice are planned as if it were written once") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000) / 10;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    const auto once = gspmd::detail::canonical_order(program.g);
    const auto twice = gspmd::detail::canonical_order(written_twice(program.g));
    REQUIRE(twice.nodes.size() == once.nodes.size());
    const auto plan = gspmd::detail::plan_at_run_time(once, program.mesh, {});
    const auto other = gspmd::detail::plan_at_run_time(twice, program.mesh, {});
    const auto difference = reference::difference(gspmd::detail::plan_view(plan), gspmd::detail::plan_view(other));
    if (!difference.empty()) FAIL_CHECK("seed ", seed, ": ", difference);
  }
}

TEST_CASE("seeds that were wrong once") {
  for (const std::uint64_t seed : {std::uint64_t{3115680}}) {  // computed in one branch for two users that read it through
                                                               // a broadcast
    const reference::random_program program(seed);
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, {});
    gspmd::simulated_communicator comm(program.device_count());
    CHECK(reference::run_and_check(comm, program, gspmd::detail::plan_view(plan)) == "");
  }
  reference::random_options with_lookups;
  with_lookups.lookups = true;
  const reference::random_program sums(91032459, with_lookups);  // a sum of other values after a scatter that adds
  const auto two_results = gspmd::detail::plan_at_run_time(gspmd::detail::canonical_order(sums.g), sums.mesh, {});
  gspmd::simulated_communicator devices(sums.device_count());
  CHECK(reference::run_and_check(devices, sums, gspmd::detail::plan_view(two_results)) == "");
  const reference::random_program program(71016005);  // with GCC: an output over an input that is being sent
  gspmd::detail::plan_request request;
  request.hide = gspmd::detail::hide_collectives;
  const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, request);
  CHECK(reference::run_and_check_on_threads(program, gspmd::detail::plan_view(plan)) == "");
}

TEST_CASE("random programs on threads equal the naive reference") {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(10000) / 10;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed);
    gspmd::detail::plan_request request;
    if (seed % 3 == 1) request.hide = gspmd::detail::hide_collectives;
    const auto plan = gspmd::detail::plan_at_run_time(program.g, program.mesh, request);
    const gspmd::detail::plan_view view(plan);
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
}
