// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/network_rates.hpp"

/// How long collectives take on a network, in picoseconds, from the bytes that each device sends. A collective is done axis by axis, so
/// that every byte is counted on the axis it travels over.
namespace gspmd::detail {

/// Picoseconds by mesh axis.
using axis_times = inline_vec<std::int64_t, max_axes>;

/// A device sends `bytes` to its neighbours along an axis of `n` devices, so many times round the ring.
constexpr std::int64_t ring_time(const link_rate& link, std::int64_t n, std::int64_t bytes, std::int64_t times = 1) {
  if (!link.is_torus || n == 2) return add_times(link.time_of(bytes), link.time_of_messages(times * (n - 1)));
  return add_times(link.time_of(bytes) / 2, link.time_of_messages(times * (n / 2)));  // both ways round
}

/// a * b / c without overflow on the way, where the result has room.
constexpr std::int64_t share_of(std::int64_t a, std::int64_t b, std::int64_t c) {
  return saturating_add(saturating_multiply(a / c, b), saturating_multiply(a % c, b) / c);
}

/// `n` devices trade equal parts of `bytes` each. On a ring a part travels n/4 links on average (GShard 5.3).
constexpr std::int64_t exchange_time(const link_rate& link, std::int64_t n, std::int64_t bytes) {
  if (!link.is_torus) return add_times(link.time_of(share_of(bytes, n - 1, n)), link.time_of_messages(n - 1));
  const auto links = n == 2 ? 1 : 2;
  const auto hops_times_n = n * n / 4;
  return add_times(link.time_of(share_of(bytes, hops_times_n, n)) / links, link.time_of_messages(n / 2));
}

/// A collective that sends `bytes` from each device, by mesh axis:
///   all_gather      over the slowest axis first, while there is little to send; rings
///   reduce_scatter  the same backwards
///   all_reduce      both of them
///   all_to_all      an exchange along each axis
///   collective_permute  a shift to a neighbour along the slowest of its axes
/// Where one switch joins all devices, they send to each other at once, and all of it counts on the first axis.
constexpr axis_times times_of_collective(const mesh_shape& mesh, const network_rates& net, collective_kind kind, axis_mask axes,
                                         std::int64_t bytes) {
  axis_times times(mesh.axis_count(), std::int64_t{0});
  inline_vec<int, max_axes> order;  // slowest first
  for (int a = 0; a < mesh.axis_count(); ++a) {
    if ((axes & axis_bit(a)) == 0 || mesh.sizes[a] == 1) continue;
    int at = 0;
    while (at < order.count && net.of(order[at]).per_kib >= net.of(a).per_kib) ++at;
    order.insert(at, a);
  }
  if (order.empty()) return times;
  const auto devices = mesh.size_of(axes);
  const std::int64_t rounds = kind == collective_kind::all_reduce ? 2 : 1;
  if (kind == collective_kind::collective_permute) {
    const auto& link = net.of(order[0]);
    times[order[0]] = add_times(link.time_of(bytes), link.per_message);
  } else if (net.links.empty()) {
    times[order[0]] = add_times(net.one_switch.time_of(bytes), net.one_switch.time_of_messages(rounds * (devices - 1)));
  } else if (kind == collective_kind::all_to_all) {
    for (const int a : order) times[a] = exchange_time(net.of(a), mesh.sizes[a], share_of(bytes, devices, devices - 1));
  } else {
    std::int64_t before = 1, left = bytes;  // devices that a device has the shards of; what it has yet to send
    for (int k = 0; k < order.count; ++k) {
      const int a = order[k];
      const std::int64_t n = mesh.sizes[a];
      const auto part = k + 1 == order.count ? left : share_of(bytes, before * (n - 1), devices - 1);
      times[a] = ring_time(net.of(a), n, part, rounds);
      before *= n;
      left -= part;
    }
  }
  return times;
}

constexpr std::int64_t time_of_collective(const mesh_shape& mesh, collective_kind kind, axis_mask axes, std::int64_t bytes) {
  const network_rates& net = mesh.network;
  if (bytes == 0) return 0;
  if (net.is_by_bytes()) return net.one_switch.time_of(bytes);
  std::int64_t sum = 0;
  for (const auto t : times_of_collective(mesh, net, kind, axes, bytes)) sum = add_times(sum, t);
  return sum;
}

/// Shards of `bytes` in all go round the devices of some axes, all one way or half of them each way: at the pace of the slowest link.
constexpr axis_times times_round_ring(const mesh_shape& mesh, const network_rates& net, axis_mask axes, bool both_ways,
                                      std::int64_t bytes) {
  axis_times times(mesh.axis_count(), std::int64_t{0});
  int slowest = -1;
  for (int a = 0; a < mesh.axis_count(); ++a)
    if ((axes & axis_bit(a)) != 0 && mesh.sizes[a] > 1 && (slowest < 0 || net.of(slowest).per_kib < net.of(a).per_kib))
      slowest = a;
  if (slowest < 0) return times;
  auto link = net.of(slowest);
  link.is_torus = link.is_torus && both_ways;
  times[slowest] = ring_time(link, mesh.size_of(axes), bytes);
  return times;
}
constexpr std::int64_t time_round_ring(const mesh_shape& mesh, axis_mask axes, bool both_ways, std::int64_t bytes) {
  std::int64_t sum = 0;
  for (const auto t : times_round_ring(mesh, mesh.network, axes, both_ways, bytes)) sum = add_times(sum, t);
  return sum;
}

}  // namespace gspmd::detail
