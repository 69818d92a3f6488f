// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/detail/ir/collective_time.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/error.hpp"
#include "gspmd/plan/budget.hpp"
#include "gspmd/plan/network.hpp"

/// Estimates the time of a plan on a network, which need not exist (plan/network.hpp). The times are those that the
/// planner uses (detail/ir/collective_time.hpp). They are computed from the plan's tables only, in a constant
/// expression or at run time, for any number of devices.
namespace gspmd {

/// Seconds by mesh axis, in the order of the mesh.
using axis_seconds = detail::inline_vec<double, detail::max_axes>;

/// The estimated time of one run of a program. Operators and collectives follow each other without overlap.
///
/// The time of an operator is the time of its flops or of its memory traffic, whichever is longer
/// (detail/passes/choose/operator_work.hpp). The planner uses the same times, except for operators that state their own
/// flops: the planner counts those by factors. A loop counts once per iteration. In a conditional, the body with the
/// longer communication counts for the communication. The body with the longer computation counts for the computation.
struct time_estimate {
  axis_seconds over;         // by mesh axis; the sum is `communication`
  double communication = 0;  // seconds
  double computation = 0;
  [[nodiscard]] constexpr double total() const { return communication + computation; }
};

/// A collective of a program with its time.
struct timed_collective {
  collective what;
  detail::location at;     // the user's line
  double seconds = 0;      // of one execution
  std::int64_t times = 1;  // iterations of the loops around it
};

namespace detail {

constexpr double seconds_of(std::int64_t picoseconds) { return static_cast<double>(picoseconds) / 1e12; }
constexpr axis_seconds seconds_of(const axis_times& times) {
  axis_seconds seconds;
  for (const auto t : times) seconds.push_back(seconds_of(t));
  return seconds;
}

/// Throws gspmd::error if the network does not describe an axis.
constexpr network_rates rates_on(const network& net, const mesh_info& mesh) {
  const auto found = net.rates_on(mesh);
  if (!found.problem.empty()) throw error("network: " + std::string(found.problem.view()));
  return found.rates;
}

constexpr axis_times step_times(const network_rates& net, const plan_view& p, const mesh_shape& mesh, const plan_step& s) {
  const auto axes = s.axes;
  const auto rounds = facts_of(s).rounds(p, s);
  if (rounds != ring_rounds_kind::none)
    return times_round_ring(mesh, net, axes, rounds == ring_rounds_kind::both_ways, s.bytes_sent);
  return times_of_collective(mesh, net, s.collective, axes, s.bytes_sent);
}

constexpr time_estimate estimate_plan(const plan_view& p, const mesh_info& mesh, const network_rates& rates) {
  time_estimate result;
  result.computation = seconds_of(total_of_nodes(p, [&](const planned_node& n) { return rates.time_of(n.work); }));
  struct time_sum {
    axis_seconds over;
    double total = 0;
    constexpr void add(const axis_seconds& seconds, double times) {
      for (int a = 0; a < seconds.count; ++a) {
        over[a] += times * seconds[a];
        total += times * seconds[a];
      }
    }
    constexpr void operator+=(const time_sum& b) { add(b.over, 1); }
    constexpr void raise_to(const time_sum& b) {
      if (total < b.total) *this = b;
    }
  };
  time_sum nothing;
  nothing.over = axis_seconds(mesh.shape.axis_count(), 0.0);
  const auto sum = fold_over_run(p, nothing, [&](time_sum& t, const plan_step& s) {
    if (!communicates(s)) return;
    t.add(seconds_of(step_times(rates, p, mesh.shape, s)), static_cast<double>(s.times));
  });
  result.over = sum.over;
  result.communication = sum.total;
  return result;
}
constexpr time_estimate estimate_plan(const plan_view& p, const mesh_info& mesh, const network& net) {
  return estimate_plan(p, mesh, rates_on(net, mesh));
}

constexpr timed_collective time_step(const plan_view& p, const mesh_info& mesh, const network& net, const plan_step& s) {
  const auto axes = s.axes;
  timed_collective result{{s.collective, axes_text(mesh, axes).view()}, p.nodes[static_cast<std::size_t>(s.node)].at, 0, s.times};
  for (const auto t : step_times(rates_on(net, mesh), p, mesh.shape, s)) result.seconds += seconds_of(t);
  return result;
}

}  // namespace detail

/// Returns the number of links between each device and the next device along a mesh axis, around the ring, summed over
/// all devices.
///
/// `distance(a, b)` is the number of links between the devices with these ids. A device order with fewer links
/// suits collectives over the axis better. The function takes one step per device.
///
/// **Errors.** gspmd::error if the axis does not exist.
/// **Example.**
///
///     links_along(pod::info, "y", [](int a, int b) { return std::abs(a / 4 - b / 4) + std::abs(a % 4 - b % 4); })
///
/// **Source.** GShard, Fig. 10.
template <class Distance>
constexpr std::int64_t links_along(const detail::mesh_info& mesh, std::string_view axis, Distance distance) {
  const int along = mesh.find(axis);
  if (along < 0) throw error("links_along: the mesh has no axis `" + std::string(axis) + '`');
  std::int64_t links = 0;
  for (std::int64_t d = 0; d < mesh.shape.device_count(); ++d) {
    auto at = mesh.shape.coordinates_of(d);
    at[along] = (at[along] + 1) % mesh.shape.sizes[along];
    links += distance(static_cast<int>(d), static_cast<int>(mesh.shape.device_at(at)));
  }
  return links;
}

/// Returns the time of a compiled program on a network, by axis and in total. It is computed from the bytes that the
/// plan sends and from its flops.
///
/// **Example.**
///
///     constexpr auto t = estimate<step>(pod);      t.over[0]   t.communication   t.computation   t.total()
template <class Step>
constexpr time_estimate estimate(const network& net) {
  return detail::estimate_plan(Step::view, Step::mesh_type::info, net);
}
/// The same for a program that was compiled at run time.
template <class Program>
time_estimate estimate(const Program& program, const network& net) {
  return detail::estimate_plan(program.view(), program.mesh_info(), net);
}

/// Returns the time of each collective, in program order. A collective in a loop is listed once, and both bodies of a
/// conditional are listed.
template <class Step>
constexpr auto collective_times(const network& net) {
  std::array<timed_collective, Step::collectives.count> result{};
  std::size_t n = 0;
  for (const auto& s : Step::view.steps)
    if (detail::communicates(s)) result[n++] = detail::time_step(Step::view, Step::mesh_type::info, net, s);
  return result;
}
template <class Program>
std::vector<timed_collective> collective_times(const Program& program, const network& net) {
  std::vector<timed_collective> result;
  for (const auto& s : program.view().steps)
    if (detail::communicates(s)) result.push_back(detail::time_step(program.view(), program.mesh_info(), net, s));
  return result;
}

}  // namespace gspmd
