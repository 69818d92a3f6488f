// SPDX-License-Identifier: Apache-2.0
// labels: exhaustive
// group: random
#include <doctest/doctest.h>

#include <cstdio>

#include "gspmd/comm/simulated.hpp"
#include "gspmd/detail/passes/rewrite/compose_movements.hpp"
#include "support/run_random_on_threads.hpp"

// Random programs with shifts among the other operators: loops, fused operators, partial values around them.

/// Runs programs of several seeds on simulated devices and sometimes on threads. Calls `look(view, step)` for every
/// step of every plan. Returns the number of programs.
template <class Look>
std::uint64_t run_programs(const reference::random_options& options, Look look) {
  const auto first = reference::setting("GSPMD_SEED", 1);
  const auto count = reference::programs(4000);
  std::uint64_t composed = 0;
  for (auto seed = first; seed < first + count; ++seed) {
    const reference::random_program program(seed, options);
    auto g = gspmd::detail::canonical_order(program.g);  // every second one as users' programs are planned
    if (seed % 2 != 0) g = program.g;
    else if (gspmd::detail::compose_movements(g)) g = gspmd::detail::canonical_order(g);
    composed += g.composed.size();
    auto plan = gspmd::detail::plan_at_run_time(g, program.mesh, {});
    if (seed % 4 < 2) gspmd::detail::overlap_moves(plan, 1);  // loops that are too small for it else
    const gspmd::detail::plan_view view(plan);
    for (const auto& s : plan.steps) look(view, s);
    gspmd::simulated_communicator comm(program.device_count());
    const auto wrong = reference::run_and_check(comm, program, view);
    if (!wrong.empty()) FAIL_CHECK(wrong);
    if (seed % 20 != 0) continue;
    const auto on_threads = reference::run_and_check_on_threads(program, view);
    if (!on_threads.empty()) FAIL_CHECK(on_threads);
  }
  if (options.maps) CHECK(composed > count / 20);
  std::printf("random programs of seeds %llu to %llu, %llu movements composed: ", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(first + count - 1), static_cast<unsigned long long>(composed));
  return count;
}

TEST_CASE("random programs with pad, slice, reverse, roll and concatenate equal the naive reference") {
  reference::random_options options;
  options.maps = true;
  std::uint64_t maps = 0, sending = 0, in_bodies = 0, partial = 0, ranges = 0;
  const auto count = run_programs(options, [&](const gspmd::detail::plan_view& view, const gspmd::detail::plan_step& s) {
    if (!gspmd::detail::is_mapped(s)) return;
    ++maps;
    sending += s.bytes_sent > 0 ? 1 : 0;
    in_bodies += s.times > 1 ? 1 : 0;
    partial += view.result(s).layout.partial != 0 ? 1 : 0;
    ranges += gspmd::detail::writes_into_operand(s) ? 1 : 0;
    if (s.collective != gspmd::detail::collective_kind::collective_permute) FAIL_CHECK("another collective");
  });
  std::printf("%llu maps, %llu of them send, %llu in loops, %llu of partial values, %llu into a range\n",
              static_cast<unsigned long long>(maps), static_cast<unsigned long long>(sending),
              static_cast<unsigned long long>(in_bodies), static_cast<unsigned long long>(partial),
              static_cast<unsigned long long>(ranges));
  CHECK(maps > count);
  CHECK(sending > count / 4);
  CHECK(in_bodies > count / 100);
  CHECK(partial > count / 200);
  CHECK(ranges > count / 10);
}

TEST_CASE("random programs with shifts equal the naive reference") {
  reference::random_options options;
  options.shifts = true;
  std::uint64_t shifts = 0, sending = 0, in_bodies = 0, partial = 0;
  const auto count = run_programs(options, [&](const gspmd::detail::plan_view& view, const gspmd::detail::plan_step& s) {
    if (!gspmd::detail::is_mapped(s)) return;
    ++shifts;
    sending += s.bytes_sent > 0 ? 1 : 0;
    in_bodies += s.times > 1 ? 1 : 0;
    partial += view.result(s).layout.partial != 0 ? 1 : 0;
  });
  std::printf("%llu shifts, %llu of them send, %llu in loops, %llu of partial values\n", static_cast<unsigned long long>(shifts),
              static_cast<unsigned long long>(sending), static_cast<unsigned long long>(in_bodies),
              static_cast<unsigned long long>(partial));
  CHECK(shifts > count);
  CHECK(sending > count / 4);
  CHECK(in_bodies > count / 100);
  CHECK(partial > count / 100);
}

TEST_CASE("random programs with stencils equal the naive reference") {
  reference::random_options options;
  options.stencils = true;
  std::uint64_t margins = 0, sending = 0, wrapping = 0, in_bodies = 0, at_offsets = 0, corners = 0, uneven = 0, turns = 0,
                overlapped = 0;
  const auto count = run_programs(options, [&](const gspmd::detail::plan_view& view, const gspmd::detail::plan_step& s) {
    overlapped += gspmd::detail::is_rim(view, s) ? 1 : 0;
    if (gspmd::detail::is<gspmd::detail::kernels::finish_move>(s)) return;
    if (gspmd::detail::is_mapped(s) && gspmd::detail::map_of(view, s).has_margins()) {
      ++margins;
      sending += s.bytes_sent > 0 ? 1 : 0;
      wrapping += gspmd::detail::map_of(view, s).dims[0].beyond == gspmd::detail::continuation::round ? 1 : 0;
      in_bodies += s.times > 1 ? 1 : 0;
      uneven += view.operand(s, 0).is_padded ? 1 : 0;
    }
    if (gspmd::detail::is<gspmd::detail::kernels::fused>(s))
      at_offsets += gspmd::detail::group_of_step(view, s).margins.count > 0 ? 1 : 0;
    if (gspmd::detail::is<gspmd::detail::kernels::fused>(s))
      for (const auto& op : gspmd::detail::group_of(view, s).ops) corners += op.offsets.count > 1 ? 1 : 0;
    if (gspmd::detail::is<gspmd::detail::kernels::copy>(s)) turns += view.result(s).where.takes_turns() ? 1 : 0;
  });
  std::printf(
      "%llu margins, %llu of them sent, %llu round the end, %llu in loops, %llu of uneven shards; "
      "%llu loops at offsets, %llu loads along several dims; %llu carried values take turns; "
      "%llu loops overlapped\n",
      static_cast<unsigned long long>(margins), static_cast<unsigned long long>(sending),
      static_cast<unsigned long long>(wrapping), static_cast<unsigned long long>(in_bodies),
      static_cast<unsigned long long>(uneven), static_cast<unsigned long long>(at_offsets),
      static_cast<unsigned long long>(corners), static_cast<unsigned long long>(turns),
      static_cast<unsigned long long>(overlapped));
  CHECK(margins > count / 2);
  CHECK(sending > count / 4);
  CHECK(wrapping > count / 20);
  CHECK(in_bodies > count / 20);
  CHECK(uneven > count / 20);
  CHECK(at_offsets > count / 2);
  CHECK(corners > count / 20);
  CHECK(turns > count / 40);
  CHECK(overlapped > count / 20);
}
