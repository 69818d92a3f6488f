// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/detail/support/inline_vec.hpp"
#include "gspmd/detail/support/saturating.hpp"
#include "gspmd/detail/support/tuning.hpp"

/// How fast devices send and compute, in integers: a plan that is chosen by time is the same one whichever compiler chooses it, when
/// compiling and at run time. Times are picoseconds and saturate: past 106 days, all last equally long.
namespace gspmd::detail {

inline constexpr std::int64_t most_picoseconds = std::int64_t{1} << 61;

/// `amount` of what takes `rate` picoseconds for 1024.
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
  std::int64_t per_message = 0;                        // torus: for each link on the way
  bool is_torus = false;
  bool is_tapered = false;  // many devices that all trade with each other share what lies between them

  [[nodiscard]] constexpr std::int64_t time_of(std::int64_t bytes) const { return picoseconds_of(bytes, per_kib); }
  [[nodiscard]] constexpr std::int64_t time_of_messages(std::int64_t count) const { return multiply_time(per_message, count); }
};

/// The work of one device in an operator, as far as its time goes.
struct operator_work {
  std::int64_t flops = 0;  // that take as long at the rate of large products
  std::int64_t bytes = 0;  // read from its memory, and written
};

/// A network, as plans are chosen for it. By itself it is the one that counts where the user names none: switches that many devices share,
/// and nothing counts but what goes through them (support/tuning.hpp).
struct network_rates {
  inline_vec<link_rate, max_axes> links;  // by mesh axis; none: one switch for all
  link_rate one_switch{default_picoseconds_per_kib, 0, false, true};
  std::int64_t per_mebiflop = 1024 * default_picoseconds_per_1024_flops;  // of 2^20 flops: some devices do 1000 in a picosecond
  std::int64_t per_kib_of_memory = default_flops_per_byte_of_memory * default_picoseconds_per_1024_flops;
  bool is_named = false;  // by the user: operators are priced by their extents and their memory too

  [[nodiscard]] constexpr const link_rate& of(int axis) const { return axis < links.count ? links.items[axis] : one_switch; }
  /// A collective of up to so many devices takes what its bytes take, whatever its kind and axes.
  [[nodiscard]] constexpr bool is_by_bytes(std::int64_t devices) const {
    return links.empty() && one_switch.per_message == 0 && (!one_switch.is_tapered || devices <= untapered_devices);
  }
  /// A device computes while its memory moves: the larger of both (a roofline).
  [[nodiscard]] constexpr std::int64_t time_of(const operator_work& work) const {
    const bool is_few = work.flops <= (std::int64_t{1} << 40);
    const auto computing = per_mebiflop % 1024 == 0 ? picoseconds_of(work.flops, per_mebiflop / 1024)
                           : is_few                 ? picoseconds_of(work.flops, per_mebiflop) / 1024
                                                    : picoseconds_of(work.flops / 1024, per_mebiflop);
    const auto moving = picoseconds_of(work.bytes, per_kib_of_memory);
    return computing > moving ? computing : moving;
  }
  /// No byte goes faster.
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

}  // namespace gspmd::detail
