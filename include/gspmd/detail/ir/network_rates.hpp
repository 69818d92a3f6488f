// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/text.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// The speed of communication and computation, in integers. So all compilers choose the same plan by time, at compile
/// time and at run time. Times are in picoseconds and saturate: all times above 26 days are equal.
namespace gspmd::detail {

inline constexpr std::int64_t most_picoseconds = std::int64_t{1} << 61;

/// Returns the picoseconds of `amount`, if 1024 take `rate` picoseconds.
constexpr std::int64_t picoseconds_of(std::int64_t amount, std::int64_t rate) {
  if (rate <= (std::int64_t{1} << 20) && amount <= (std::int64_t{1} << 40)) return amount * rate / 1024;
  const auto whole = saturating_multiply(amount, rate / 1024);
  const auto rest = saturating_add(saturating_multiply(amount / 1024, rate % 1024), amount % 1024 * (rate % 1024) / 1024);
  const auto sum = saturating_add(whole, rest);
  return sum < most_picoseconds ? sum : most_picoseconds;
}
constexpr std::int64_t add_times(std::int64_t a, std::int64_t b) {  // each at most most_picoseconds
  return a + b < most_picoseconds ? a + b : most_picoseconds;
}
constexpr std::int64_t multiply_time(std::int64_t time, std::int64_t times) {
  const auto product = saturating_multiply(time, times);
  return product < most_picoseconds ? product : most_picoseconds;
}

/// The link of a device along a mesh axis.
struct link_rate {
  std::int64_t per_kib = default_picoseconds_per_kib;  // in each direction
  std::int64_t per_message = 0;                        // torus: for each link on the path
  bool is_torus = false;
  bool is_tapered = false;  // many devices that all communicate with each other share the links between switches

  [[nodiscard]] constexpr std::int64_t time_of(std::int64_t bytes) const { return picoseconds_of(bytes, per_kib); }
  [[nodiscard]] constexpr std::int64_t time_of_messages(std::int64_t count) const { return multiply_time(per_message, count); }
};

/// The work of one device in an operator, for estimates of its time.
struct operator_work {
  std::int64_t flops = 0;  // the number that takes the same time at the rate of large products
  std::int64_t bytes = 0;  // read from its memory and written to it
};

/// The network for which plans are chosen. The default applies if the user names no network: many devices share
/// switches, and only the bytes through the switches count (support/tuning.hpp).
struct network_rates {
  inline_vec<link_rate, max_axes> links;  // by mesh axis; empty: one switch for all devices
  link_rate one_switch{default_picoseconds_per_kib, 0, false, true};
  // of 2^20 flops: some devices compute 1000 flops in a picosecond
  std::int64_t per_mebiflop = 1024 * default_picoseconds_per_1024_flops;
  std::int64_t per_kib_of_memory = default_flops_per_byte_of_memory * default_picoseconds_per_1024_flops;
  bool is_named = false;  // by the user: the cost of operators then also depends on their extents and memory traffic

  [[nodiscard]] constexpr const link_rate& of(int axis) const { return axis < links.count ? links.items[axis] : one_switch; }
  /// Returns true if the time of a collective of `devices` devices depends only on its bytes, not on its kind and axes.
  [[nodiscard]] constexpr bool is_by_bytes(std::int64_t devices) const {
    return links.empty() && one_switch.per_message == 0 && (!one_switch.is_tapered || devices <= untapered_devices);
  }
  /// Returns the larger of the times of computation and memory traffic, which overlap (a roofline).
  [[nodiscard]] constexpr std::int64_t time_of(const operator_work& work) const {
    const bool is_few = work.flops <= (std::int64_t{1} << 40);
    const auto computing = per_mebiflop % 1024 == 0 ? picoseconds_of(work.flops, per_mebiflop / 1024)
                           : is_few                 ? picoseconds_of(work.flops, per_mebiflop) / 1024
                                                    : picoseconds_of(work.flops / 1024, per_mebiflop);
    const auto moving = picoseconds_of(work.bytes, per_kib_of_memory);
    return computing > moving ? computing : moving;
  }
  /// Returns the picoseconds per KiB of the fastest link.
  [[nodiscard]] constexpr std::int64_t fastest_per_kib() const {
    if (links.empty()) return one_switch.per_kib;
    std::int64_t fastest = most_picoseconds;
    for (const auto& link : links) {
      const auto rate = link.is_torus ? link.per_kib / 2 : link.per_kib;
      if (rate < fastest) fastest = rate;
    }
    return fastest;
  }
};

/// The rates of a network on the axes of a mesh, or the reason why the network does not describe the mesh.
struct described_network {
  network_rates rates;
  text problem;
};

}  // namespace gspmd::detail
