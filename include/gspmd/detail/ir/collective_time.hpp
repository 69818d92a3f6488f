// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

#include "gspmd/detail/ir/collective.hpp"
#include "gspmd/detail/ir/network_rates.hpp"

/// The times of collectives on a network, in picoseconds. The input is the bytes that each device sends with the
/// algorithm that sends the fewest bytes. Each collective takes the time of the fastest of its usual algorithms
/// (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH"). Algorithms
/// with few messages are fastest for small data, those with few bytes for large data. If each axis has its own links, a
/// collective runs axis by axis, so every byte counts on the axis that carries it.
namespace gspmd::detail {

/// Picoseconds by mesh axis.
using axis_times = inline_vec<std::int64_t, max_axes>;

/// Returns a * b / c without overflow of intermediate results, if the result fits.
constexpr std::int64_t share_of(std::int64_t a, std::int64_t b, std::int64_t c) {
  return saturating_add(saturating_multiply(a / c, b), saturating_multiply(a % c, b) / c);
}

/// Returns the number of doublings from 1 to at least `n`.
constexpr std::int64_t doublings(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
}

/// Returns the time for each of `n` devices along an axis to send `bytes` to its neighbours, in `times` passes
/// around the ring.
constexpr std::int64_t ring_time(const link_rate& link, std::int64_t n, std::int64_t bytes, std::int64_t times = 1) {
  if (!link.is_torus || n == 2) return add_times(link.time_of(bytes), link.time_of_messages(times * (n - 1)));
  return add_times(link.time_of(bytes) / 2, link.time_of_messages(times * (n / 2)));  // in both directions
}

/// Returns the time for `n` devices to gather, each sending `bytes`. A reduce_scatter is the same in reverse. On a
/// switch, the distance to the partner doubles with each of log2(n) messages (recursive doubling). If n is not a power
/// of 2, this is Bruck's algorithm. On a torus every message crosses the links in between, so a ring needs no more
/// messages on its links. `times` is 2 for a reduce_scatter and an all_gather that send `bytes` together.
constexpr std::int64_t gather_time(const link_rate& link, std::int64_t n, std::int64_t bytes, std::int64_t times = 1) {
  if (link.is_torus) return ring_time(link, n, bytes, times);
  return add_times(link.time_of(bytes), link.time_of_messages(times * doublings(n)));
}

/// Returns the time for `n` devices to sum `bytes` per device without scattering. Each device gathers all data
/// and adds. On a switch, if `n` is a power of 2, the devices use recursive doubling.
constexpr std::int64_t whole_sum_time(const link_rate& link, std::int64_t n, std::int64_t bytes) {
  const auto rounds = doublings(n);
  const bool doubles = !link.is_torus && (n & (n - 1)) == 0;
  return gather_time(link, n, saturating_multiply(bytes, doubles ? rounds : n - 1));
}

/// Returns the number of blocks that an exchange of the blocks 0 to n-1 by Bruck's algorithm sends. It sends block b
/// once for each set bit of b. This is n/2 log2(n) if n is a power of 2.
constexpr std::int64_t blocks_of_bruck(std::int64_t n) {
  std::int64_t blocks = 0;
  for (std::int64_t bit = 1; bit < n; bit *= 2) blocks += n / (2 * bit) * bit + (n % (2 * bit) > bit ? n % (2 * bit) - bit : 0);
  return blocks;
}

/// Returns the square root of a number, rounded down.
constexpr std::int64_t root_of(std::int64_t n) {
  auto root = std::int64_t{1} << (std::bit_width(static_cast<std::uint64_t>(n)) + 1) / 2;
  while (root * root > n) root = (root + n / root) / 2;
  return root;
}

/// Returns the time for `n` devices to exchange equal parts of `bytes` each. On a switch this takes n-1 direct
/// messages, or log2(n) messages through other devices (Bruck). On a ring a part crosses n/4 links on average. If links
/// between switches are shared, the time grows with the square root of the number of devices. GShard 5.3 measures 9
/// times the time for 128 times the devices.
constexpr std::int64_t exchange_time(const link_rate& link, std::int64_t n, std::int64_t bytes) {
  if (link.is_torus) {
    const auto links = n == 2 ? 1 : 2;
    const auto hops_times_n = n * n / 4;
    return add_times(link.time_of(share_of(bytes, hops_times_n, n)) / links, link.time_of_messages(n / 2));
  }
  if (link.is_tapered && n > untapered_devices) bytes = share_of(bytes, root_of(1024 * n / untapered_devices), 32);
  const auto directly = add_times(link.time_of(share_of(bytes, n - 1, n)), link.time_of_messages(n - 1));
  if (link.per_message == 0 || n <= 3) return directly;
  const auto by_others = add_times(link.time_of(share_of(bytes, blocks_of_bruck(n), n)), link.time_of_messages(doublings(n)));
  return directly < by_others ? directly : by_others;
}

/// Returns the time of a collective of `n` devices on one switch, if each device sends `bytes`.
constexpr std::int64_t time_on_switch(const link_rate& link, collective_kind kind, std::int64_t n, std::int64_t bytes) {
  if (kind == collective_kind::collective_permute) return add_times(link.time_of(bytes), link.per_message);
  if (kind == collective_kind::all_to_all) return exchange_time(link, n, share_of(bytes, n, n - 1));
  if (kind != collective_kind::all_reduce) return gather_time(link, n, bytes);
  const auto in_parts = gather_time(link, n, bytes, 2);  // reduce_scatter, all_gather
  const auto whole = whole_sum_time(link, n, share_of(bytes, n, 2 * (n - 1)));
  return in_parts < whole ? in_parts : whole;
}

/// Axes of a mesh, slowest first.
using slow_to_fast = inline_vec<int, max_axes>;

/// Adds the times of an all_gather over axes with their own links. The slowest axis is first, while the messages are
/// small. `times` is as in gather_time.
constexpr void add_gather_times(const mesh_shape& mesh, const network_rates& net, const slow_to_fast& order, int first,
                                std::int64_t bytes, std::int64_t times, axis_times& sum) {
  std::int64_t devices = 1;
  for (int k = first; k < order.count; ++k) devices *= mesh.sizes[order[k]];
  std::int64_t before = 1, left = bytes;  // devices whose shards a device has; bytes that it still sends
  for (int k = first; k < order.count; ++k) {
    const int a = order[k];
    const std::int64_t n = mesh.sizes[a];
    const auto part = k + 1 == order.count ? left : share_of(bytes, before * (n - 1), devices - 1);
    sum[a] = add_times(sum[a], gather_time(net.of(a), n, part, times));
    before *= n;
    left -= part;
  }
}

constexpr std::int64_t sum_of_times(const axis_times& times) {
  std::int64_t sum = 0;
  for (const auto t : times) sum = add_times(sum, t);
  return sum;
}

/// Returns the times of an all_reduce over axes with their own links. It is a reduce_scatter over some of the fastest
/// axes, whole sums of the parts over the other axes, and an all_gather. `bytes` is the number for a reduce_scatter
/// over all axes.
constexpr axis_times times_of_sum(const mesh_shape& mesh, const network_rates& net, const slow_to_fast& order,
                                  std::int64_t bytes) {
  std::int64_t devices = 1;
  for (const int a : order) devices *= mesh.sizes[a];
  const auto whole = share_of(bytes, devices, 2 * (devices - 1));
  axis_times best;
  for (int first = 0; first <= order.count; ++first) {  // the first axis of the reduce_scatter
    axis_times times(mesh.axis_count(), std::int64_t{0});
    std::int64_t parts = 1;
    for (int k = first; k < order.count; ++k) parts *= mesh.sizes[order[k]];
    add_gather_times(mesh, net, order, first, parts == devices ? bytes : share_of(2 * whole, parts - 1, parts), 2, times);
    for (int k = 0; k < first; ++k) times[order[k]] = whole_sum_time(net.of(order[k]), mesh.sizes[order[k]], whole / parts);
    if (first == 0 || sum_of_times(times) < sum_of_times(best)) best = times;
  }
  return best;
}

/// Returns the times by mesh axis of a collective, if each device sends `bytes`:
///   all_gather      axis by axis
///   reduce_scatter  the same in reverse
///   all_reduce      reduce_scatter and all_gather, or whole sums
///   all_to_all      an exchange along each axis
///   collective_permute  a shift to a neighbour along the slowest of its axes
/// If one switch connects all devices, all devices communicate directly, and the whole time counts on the first axis.
constexpr axis_times times_of_collective(const mesh_shape& mesh, const network_rates& net, collective_kind kind, axis_mask axes,
                                         std::int64_t bytes) {
  axis_times times(mesh.axis_count(), std::int64_t{0});
  slow_to_fast order;
  for (int a = 0; a < mesh.axis_count(); ++a) {
    if ((axes & axis_bit(a)) == 0 || mesh.sizes[a] == 1) continue;
    int at = 0;
    while (at < order.count && net.of(order[at]).per_kib >= net.of(a).per_kib) ++at;
    order.insert(at, a);
  }
  if (order.empty()) return times;
  const auto devices = mesh.size_of(axes);
  if (net.links.empty()) {
    times[order[0]] = time_on_switch(net.one_switch, kind, devices, bytes);
  } else if (kind == collective_kind::collective_permute) {
    const auto& link = net.of(order[0]);
    times[order[0]] = add_times(link.time_of(bytes), link.per_message);
  } else if (kind == collective_kind::all_to_all) {
    for (const int a : order) times[a] = exchange_time(net.of(a), mesh.sizes[a], share_of(bytes, devices, devices - 1));
  } else if (kind == collective_kind::all_reduce) {
    times = times_of_sum(mesh, net, order, bytes);
  } else {
    add_gather_times(mesh, net, order, 0, bytes, 1, times);
  }
  return times;
}

constexpr std::int64_t time_of_collective(const mesh_shape& mesh, const network_rates& net, collective_kind kind, axis_mask axes,
                                          std::int64_t bytes) {
  if (bytes == 0) return 0;
  if (net.links.empty()) {
    const auto devices = mesh.size_of(axes);
    if (net.is_by_bytes(devices)) return net.one_switch.time_of(bytes);
    return devices == 1 ? 0 : time_on_switch(net.one_switch, kind, devices, bytes);
  }
  return sum_of_times(times_of_collective(mesh, net, kind, axes, bytes));
}

/// Returns the times for shards of `bytes` in total to rotate around the devices of `axes`, at the speed of the
/// slowest link. With `both_ways`, half of the shards rotate in each direction.
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
constexpr std::int64_t time_round_ring(const mesh_shape& mesh, const network_rates& net, axis_mask axes, bool both_ways,
                                       std::int64_t bytes) {
  return sum_of_times(times_round_ring(mesh, net, axes, both_ways, bytes));
}

}  // namespace gspmd::detail
