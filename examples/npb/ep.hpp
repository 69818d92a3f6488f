// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// EP, embarrassingly parallel: Gaussian deviates by Marsaglia's polar method from 2^m pairs of numbers. Computes their
/// sums, and the number of deviates in each of ten square rings (NPB report RNR-94-007, section 2.2.1).
namespace npb::ep {

using gspmd::value;

/// Verification values of NPB 3.4, ep.f90. The counts are from its printed results. For class W, no counts are
/// published.
struct problem {
  int log_pairs;
  double sum_x, sum_y;
  std::vector<double> counts;
};
inline problem of_class(char name) {
  if (name == 'S')
    return {24, -3.247834652034740e3, -6.958407078382297e3, {6140517, 5865300, 1100361, 68546, 1648, 17, 0, 0, 0, 0}};
  if (name == 'W') return {25, -2.863319731645753e3, -6.320053679109499e3, {}};
  return {28, -4.295875165629892e3, -1.580732573678431e4, {98257395, 93827014, 17611549, 1110028, 26536, 245, 0, 0, 0, 0}};
}

/// Computes numbers in tables of 64 rows, which the devices split. An element is the product of the jumps of its row
/// and its column from the seed. Each table is the previous table, jumped ahead. No table is stored. The table of the
/// rings is small enough for a cache.
inline auto program(int log_pairs) {
  return [log_pairs](value seed) {
    constexpr std::int64_t rows = 64, columns = 1 << 12, rings = 10;
    const std::int64_t tables = (std::int64_t{1} << log_pairs) / (rows * columns);
    const value row = reshard(gspmd::iota<std::uint64_t>(seed, {rows, 1}, 0), gspmd::split<"devices", gspmd::_>{});
    const value column = gspmd::iota<std::uint64_t>(seed, {1, columns}, 1);
    const value along_row = powers_of_multiplier(2 * column, 13) * multiplier;
    const value none = gspmd::constant<double>(seed, {}, 0.0);
    const auto last = gspmd::fori_loop(
        tables,
        [&](value, value start, value sum_x, value sum_y, value counts) {
          const value first = start * along_row, second = first * multiplier;
          const value u = 2.0 * uniform(first) - 1.0, v = 2.0 * uniform(second) - 1.0, t = u * u + v * v;
          const value is_inside = t <= 1.0, factor = where(is_inside, sqrt(-2.0 * log(t) / t), 0.0);
          const value x = u * factor, y = v * factor;
          const value ring = where(is_inside, gspmd::cast<std::int32_t>(max(abs(x), abs(y))), rings);  // outside: no ring
          return std::tuple(start * power_of_multiplier(2 * rows * columns), sum_x + sum(x), sum_y + sum(y),
                            counts + histogram(ring, rings));
        },
        seed * powers_of_multiplier(row * (2 * columns), 19), none, none,
        zeros_like(gspmd::constant<std::int32_t>(seed, {rings}, 0)));
    return std::tuple(std::get<1>(last), std::get<2>(last), std::get<3>(last));
  };
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const auto step = gspmd::dynamic::compile(program(p.log_pairs), m.mesh(), gspmd::dynamic::input<std::uint64_t>({}));
  const std::uint64_t seed = 271'828'183;
  std::vector<any_array> made;
  outcome o = planned(step);
  const auto run_step = m.prepare(step);
  o.seconds = seconds_of([&] { made = run_step({&seed}); });
  o.operations = std::ldexp(1.0, p.log_pairs + 1);  // random numbers
  o.checks = {{"sum of x", *made[0].data<double>(), p.sum_x, 1e-8}, {"sum of y", *made[1].data<double>(), p.sum_y, 1e-8}};
  for (std::size_t k = 0; k < p.counts.size(); ++k)
    o.checks.push_back(
        {"deviates in ring " + std::to_string(k), static_cast<double>(made[2].data<std::int32_t>()[k]), p.counts[k], 0});
  return o;
}

}  // namespace npb::ep
