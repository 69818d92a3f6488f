// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// IS, integer sort: the ranks of keys, from the counts of each number among the keys and their running sums (NPB
/// report RNR-94-007, section 2.2.5).
namespace npb::is {

using gspmd::value;

/// Verification values of NPB 3.4, is.c: the ranks of five keys. In iteration i the first `rising` ranks are `rank + i
/// - late`, and the other ranks `rank - (i - late_others)`, because two keys change in each iteration.
struct problem {
  int log_keys, log_most;
  std::array<std::int32_t, 5> places;
  std::array<std::int64_t, 5> ranks;
  std::size_t rising;
  int late, late_others;
};
inline problem of_class(char name) {
  if (name == 'S') return {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, 3, 0, 0};
  if (name == 'W') return {20, 16, {357773, 934767, 875723, 898999, 404505}, {1249, 11698, 1039987, 1043896, 1048018}, 2, 2, 0};
  return {23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {104, 17523, 123928, 8288932, 8388264}, 3, 1, 1};
}
inline constexpr std::int64_t iterations = 10;

/// Returns the ranks of the keys at five positions, for each iteration. Also returns the final keys, and the number of
/// keys that are at most 0, 1, 2, ...
inline auto ranking(const problem& p) {
  return [p](value keys, value places) {
    const std::int64_t most = std::int64_t{1} << p.log_most;
    const auto with = [](value x, value number, value place) {
      return dynamic_update_slice(x, reshape(gspmd::cast<std::int32_t>(number), {1}), std::array{place});
    };
    const value one = gspmd::constant<std::int64_t>(keys, {1}, 1);
    const value number = cumsum(broadcast_in_dim(reshape(one, {}), {iterations}, {}), 0);  // 1, 2, ...
    const auto [last, ranks] = gspmd::scan(
        [&](std::tuple<value, value> now, value i) {
          const value changed = with(with(std::get<0>(now), i, i), most - i, i + iterations);
          const value up_to = cumsum(histogram(changed, most), 0);
          return std::tuple(std::tuple(changed, up_to), take(up_to, take(changed, places, 0) - 1, 0));
        },
        std::tuple(keys, gspmd::constant<std::int32_t>(keys, {most}, 0)), number);
    return std::tuple(ranks, std::get<0>(last), std::get<1>(last));
  };
}

/// Returns the number of sorted keys that are not at the position of their rank.
inline constexpr auto misplaced = [](value keys, value up_to) {
  const value sorted = sort(keys, 0), place = gspmd::iota<std::int32_t>(keys, {keys.shape()[0]}, 0);
  const value end = take(up_to, sorted, 0), begin = where(equal(sorted, 0), 0, take(up_to, sorted - 1, 0));
  return sum(gspmd::cast<std::int32_t>(bitwise_not(bitwise_and(begin <= place, place < end))));
};

/// Returns the keys: sums of four random numbers.
inline std::vector<std::int32_t> keys(const problem& p) {
  std::vector<std::int32_t> made(std::size_t{1} << p.log_keys);
  sequence random(314'159'265);
  for (auto& key : made) {
    double four = random.next();
    for (int k = 1; k < 4; ++k) four += random.next();
    key = static_cast<std::int32_t>(four * static_cast<double>((std::int64_t{1} << p.log_most) / 4));
  }
  return made;
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const std::int64_t count = std::int64_t{1} << p.log_keys, most = std::int64_t{1} << p.log_most;
  const auto all_keys = keys(p);
  const auto split_keys = gspmd::dynamic::input<std::int32_t>({count}, {"devices"});
  const auto step = gspmd::dynamic::compile(ranking(p), m.mesh(), split_keys, gspmd::dynamic::input<std::int32_t>({5}, {""}));
  const auto check_order =
      gspmd::dynamic::compile(misplaced, m.mesh(), split_keys, gspmd::dynamic::input<std::int32_t>({most}, {""}));
  std::vector<any_array> made;
  outcome o = planned(step);
  const auto run_step = m.prepare(step);
  o.seconds = seconds_of([&] { made = run_step({all_keys.data(), p.places.data()}); });
  o.operations = static_cast<double>(iterations * count);
  for (std::int64_t i = 1; i <= iterations; ++i)
    for (std::size_t k = 0; k < 5; ++k) {
      const auto expected = k < p.rising ? p.ranks[k] + i - p.late : p.ranks[k] - (i - p.late_others);
      const auto rank = made[0].data<std::int32_t>()[static_cast<std::size_t>(5 * (i - 1)) + k];
      if (i == 1 || i == iterations || rank != expected)
        o.checks.push_back({"rank " + std::to_string(k) + " of iteration " + std::to_string(i), static_cast<double>(rank),
                            static_cast<double>(expected), 0});
    }
  const auto wrong = m.prepare(check_order)({made[1].bytes.data(), made[2].bytes.data()});
  o.checks.push_back({"keys out of order", static_cast<double>(*wrong[0].data<std::int32_t>()), 0, 0});
  return o;
}

}  // namespace npb::is
