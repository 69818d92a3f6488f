// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "gspmd/budget.hpp"
#include "gspmd/detail/ir/graph.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/error.hpp"

/// A plan as seconds on a machine that is not there: a network is one link per mesh axis, and every collective is done axis by
/// axis. Computed from the plan's tables only, in a constant expression or at run time, for any number of devices alike.
namespace gspmd {

/// How the devices along one mesh axis are connected.
enum class topology : std::uint8_t {
  torus,     // each to the next and the previous one, round a ring; two devices share one link
  switched,  // each by one port to a switch that carries everything at once
};

/// The link of a device along one mesh axis. An axis that lies on two dims of a torus is two mesh axes.
struct axis_link {
  dim_spec axis = _;  // its name
  topology connected = topology::switched;
  double bytes_per_second = 0;     // of one link or port, in each direction
  double seconds_per_message = 0;  // torus: for each link on the way
};

/// A network for estimates, and how fast a device computes. Of a program on `views` the axes are those of the first mesh.
///
///     constexpr network pod(61.5e12, {{"x", topology::torus, 70e9, 1e-6}, {"y", topology::torus, 70e9, 1e-6}});
///     static_assert(estimate<step>(pod).communication < 1e-3);
class network {
 public:
  /// Throws gspmd::error: a rate that is not positive, a time that is negative.
  constexpr network(double flops_per_second, std::initializer_list<axis_link> links) : flops_per_second_(flops_per_second) {
    if (!(flops_per_second > 0)) throw error("network: a device computes at a positive rate");
    if (links.size() > static_cast<std::size_t>(detail::max_axes)) throw error("network: a mesh has at most 16 axes");
    for (const auto& link : links) {
      if (!(link.bytes_per_second > 0) || !(link.seconds_per_message >= 0))
        throw error("network: axis `" + std::string(link.axis.view()) +
                    "` needs a positive rate and a time that is not negative");
      links_.push_back(link);
    }
  }
  [[nodiscard]] constexpr double flops_per_second() const { return flops_per_second_; }
  /// Throws gspmd::error: nothing is known of the axis.
  [[nodiscard]] constexpr const axis_link& link(std::string_view axis) const {
    for (const auto& l : links_)
      if (l.axis.view() == axis) return l;
    throw error("network: nothing is said about the mesh axis `" + std::string(axis) + '`');
  }

 private:
  detail::inline_vec<axis_link, detail::max_axes> links_;
  double flops_per_second_ = 0;
};

/// Seconds by mesh axis, in the order of the mesh.
using axis_seconds = detail::inline_vec<double, detail::max_axes>;

/// What one run of a program takes: nothing overlaps, and computing is limited by arithmetic alone. Loops take as often as they
/// run; of the bodies of a conditional, the one that communicates longer counts for the communication, and the one that computes
/// more for the computation.
struct time_estimate {
  axis_seconds over;         // by mesh axis; their sum is `communication`
  double communication = 0;  // seconds
  double computation = 0;
  [[nodiscard]] constexpr double total() const { return communication + computation; }
};

/// One collective of a program: what it is, for whose sake, and how long it takes.
struct timed_collective {
  collective what;
  detail::location at;     // the user's line
  double seconds = 0;      // each time
  std::int64_t times = 1;  // the trips of the loops around it
};

namespace detail {

/// The time in which a device sends `bytes` to its neighbours along an axis of `n` devices, in n-1 rounds.
constexpr double ring_seconds(const axis_link& link, std::int64_t n, double bytes) {
  if (link.connected == topology::switched || n == 2)
    return bytes / link.bytes_per_second + static_cast<double>(n - 1) * link.seconds_per_message;
  return bytes / (2 * link.bytes_per_second) + static_cast<double>(n / 2) * link.seconds_per_message;  // both ways round
}

/// The time in which `n` devices trade equal parts of `bytes` each. On a ring a part travels n/4 links on average (GShard 5.3).
constexpr double exchange_seconds(const axis_link& link, std::int64_t n, double bytes) {
  const auto count = static_cast<double>(n);
  if (link.connected == topology::switched)
    return bytes * (count - 1) / count / link.bytes_per_second + (count - 1) * link.seconds_per_message;
  const auto hops = static_cast<double>(n * n / 4) / count;
  const double links = n == 2 ? 1 : 2;
  return bytes * hops / links / link.bytes_per_second + static_cast<double>(n / 2) * link.seconds_per_message;
}

/// The seconds of a collective that sends `bytes` from each device, by mesh axis. It is done axis by axis, so that every byte
/// is counted on the axis it travels over:
///   all_gather      over the slowest axis first, while there is little to send; rings
///   reduce_scatter  the same backwards
///   all_reduce      both of them
///   all_to_all      an exchange along each axis
///   collective_permute  a shift to a neighbour along the slowest of its axes
constexpr axis_seconds collective_seconds(const network& net, const mesh_info& mesh, collective_kind kind, axis_mask axes,
                                          std::int64_t bytes) {
  axis_seconds seconds(mesh.shape.axis_count(), 0.0);
  inline_vec<int, max_axes> order;  // slowest first
  for (int a = 0; a < mesh.shape.axis_count(); ++a) {
    if ((axes & axis_bit(a)) == 0 || mesh.shape.sizes[a] == 1) continue;
    int at = 0;
    while (at < order.count &&
           net.link(mesh.base_name(order[at])).bytes_per_second <= net.link(mesh.base_name(a)).bytes_per_second)
      ++at;
    order.insert(at, a);
  }
  if (order.empty()) return seconds;
  const auto sent = static_cast<double>(bytes);
  const auto devices = static_cast<double>(mesh.shape.size_of(axes));
  if (kind == collective_kind::collective_permute) {
    const auto& link = net.link(mesh.base_name(order[0]));
    seconds[order[0]] = sent / link.bytes_per_second + link.seconds_per_message;
    return seconds;
  }
  if (kind == collective_kind::all_to_all) {
    for (const int a : order)
      seconds[a] = exchange_seconds(net.link(mesh.base_name(a)), mesh.shape.sizes[a], sent * devices / (devices - 1));
    return seconds;
  }
  const double rounds = kind == collective_kind::all_reduce ? 2 : 1;
  double shard = sent / rounds / (devices - 1);  // what a device has before an all_gather
  for (const int a : order) {
    const auto n = mesh.shape.sizes[a];
    seconds[a] = rounds * ring_seconds(net.link(mesh.base_name(a)), n, shard * static_cast<double>(n - 1));
    shard *= static_cast<double>(n);
  }
  return seconds;
}

/// The same of a step of a plan. Shards that go round the devices of several axes turn at the slowest one's links.
constexpr axis_seconds step_seconds(const network& net, const plan_view& p, const mesh_info& mesh, const plan_step& s) {
  const auto axes = axes_of(p, s);
  auto seconds = collective_seconds(net, mesh, s.collective, axes, s.bytes_sent);
  const auto rounds = facts_of(s).rounds(p, s);
  if (rounds == ring_rounds_kind::none) return seconds;
  for (int a = 0; a < seconds.count; ++a) {
    if (seconds[a] == 0) continue;
    auto link = net.link(mesh.base_name(a));
    if (rounds == ring_rounds_kind::one_way) link.connected = topology::switched;  // one way round
    seconds[a] = ring_seconds(link, mesh.shape.size_of(axes), static_cast<double>(s.bytes_sent));
  }
  return seconds;
}

constexpr time_estimate estimate_plan(const plan_view& p, const mesh_info& mesh, const network& net) {
  time_estimate result;
  result.computation = static_cast<double>(total_flops(p)) / net.flops_per_second();
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
    if (!communicates(p, s)) return;
    t.add(step_seconds(net, p, mesh, s), static_cast<double>(s.times));
  });
  result.over = sum.over;
  result.communication = sum.total;
  return result;
}

constexpr timed_collective time_step(const plan_view& p, const mesh_info& mesh, const network& net, const plan_step& s) {
  const auto axes = axes_of(p, s);
  timed_collective result{{s.collective, axes_text(mesh, axes).view()}, p.nodes[static_cast<std::size_t>(s.node)].at, 0, s.times};
  for (const double t : step_seconds(net, p, mesh, s)) result.seconds += t;
  return result;
}

}  // namespace detail

/// The links between every device and the next one along a mesh axis, round the ring, all together: of two orders of the devices
/// (GShard Fig. 10) the one with fewer links suits collectives over the axis better. `distance(a, b)` is the number of links
/// between the devices with these ids. Takes as many steps as there are devices. Throws gspmd::error: no such axis.
///
///     links_along(pod::info, "y", [](int a, int b) { return std::abs(a / 4 - b / 4) + std::abs(a % 4 - b % 4); })
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

/// The time of a compiled program on a network, by axis and in total, from the bytes that its plan sends and its flops.
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

/// The time of each collective, in the order in which they stand in the program: once in a loop, and in both bodies of a
/// conditional.
template <class Step>
constexpr auto collective_times(const network& net) {
  std::array<timed_collective, Step::collectives.count> result{};
  std::size_t n = 0;
  for (const auto& s : Step::view.steps)
    if (detail::communicates(Step::view, s)) result[n++] = detail::time_step(Step::view, Step::mesh_type::info, net, s);
  return result;
}
template <class Program>
std::vector<timed_collective> collective_times(const Program& program, const network& net) {
  std::vector<timed_collective> result;
  for (const auto& s : program.view().steps)
    if (detail::communicates(program.view(), s)) result.push_back(detail::time_step(program.view(), program.mesh_info(), net, s));
  return result;
}

}  // namespace gspmd
