// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "benchmark.hpp"
#include "random.hpp"

/// MG, multigrid: V-cycles for Poisson's equation on a periodic cube, with stencils of 27 points (NPB report
/// RNR-94-007, section 2.2.2). The first dim of the cube is split on all levels, down to a level of two points along
/// each dim.
namespace npb::mg {

using gspmd::value;

/// Verification values of NPB 3.4, mg.f90: the root of the mean square of the residual.
struct problem {
  std::int64_t n;
  double residual;
};
inline problem of_class(char name) {
  if (name == 'S') return {32, 0.5307707005734e-4};
  if (name == 'W') return {128, 0.6467329375339e-5};
  return {256, 0.2433365309069e-5};
}
inline constexpr std::int64_t cycles = 4;

/// The factors of a stencil of 27 points: for the element, and for the sums of the elements that differ from it along
/// one, two and three dims.
using weights = std::array<double, 4>;
inline constexpr weights operator_a{-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
inline constexpr weights smoother{-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};

/// A sum with the factor 0 is omitted.
inline value stencil_27(value x, weights w) {
  const auto of_neighbours = [w](auto at) {
    value result = w[0] * at(0, 0, 0);
    for (int dims = 1; dims <= 3; ++dims) {
      if (w[static_cast<std::size_t>(dims)] == 0) continue;
      std::vector<value> those;
      for (int i = -1; i <= 1; ++i)
        for (int j = -1; j <= 1; ++j)
          for (int k = -1; k <= 1; ++k)
            if (i * i + j * j + k * k == dims) those.push_back(at(i, j, k));
      result += w[static_cast<std::size_t>(dims)] * std::accumulate(those.begin() + 1, those.end(), those[0]);
    }
    return result;
  };
  return stencil<1, 1, 1>(of_neighbours, gspmd::stencil_field(x, {gspmd::boundary::wrap()}));
}
inline value residual(value u, value v) { return v - stencil_27(u, operator_a); }
/// Weights 1/2, 1/4, 1/8 and 1/16 for the odd points and their neighbours: sums of cells of eight points, eight cells
/// in a block.
inline value restricted(value fine) {
  value cells = fine;
  for (int dim = 0; dim < 3; ++dim) cells += shift(cells, 1, gspmd::along(dim), gspmd::boundary::wrap());
  return 0.5 * downsample(cells, {2, 2, 2});
}
/// Trilinear interpolation. The points of the coarse grid are the odd points of the fine grid.
inline value prolonged(value coarse) {
  value x = pad(coarse, {1, 1, 1}, {0, 0, 0}, 0, {1, 1, 1});
  for (int dim = 0; dim < 3; ++dim)
    x += 0.5 *
         (shift(x, -1, gspmd::along(dim), gspmd::boundary::wrap()) + shift(x, 1, gspmd::along(dim), gspmd::boundary::wrap()));
  return x;
}
/// Returns an approximate solution of A u = r.
inline value v_cycle(value r) {
  if (r.shape()[0] == 2) return stencil_27(r, smoother);
  const value u = prolonged(v_cycle(restricted(r)));
  return u + stencil_27(residual(u, r), smoother);
}
inline constexpr auto program = [](value v) {
  const auto last = gspmd::fori_loop(
      cycles,
      [&](value, value u, value r) {
        const value better = u + v_cycle(r);
        return std::tuple(better, residual(better, v));
      },
      zeros_like(v), v);
  const value r = std::get<1>(last);
  return sqrt(mean(r * r));
};

/// Returns 1 at the positions of the ten largest random numbers, -1 at the ten smallest. The host finds them.
inline std::vector<double> charges(std::int64_t n) {
  std::vector<double> numbers(static_cast<std::size_t>(n * n * n));
  sequence random(314'159'265);
  for (auto& x : numbers) x = random.next();
  auto sorted = numbers;
  std::nth_element(sorted.begin(), sorted.begin() + 9, sorted.end());
  const double low = sorted[9];
  std::nth_element(sorted.begin(), sorted.end() - 10, sorted.end());
  const double high = sorted[sorted.size() - 10];
  for (auto& x : numbers) x = x <= low ? -1 : x >= high ? 1 : 0;
  return numbers;
}

inline outcome run(char name, const machine& m) {
  const auto p = of_class(name);
  const auto step =
      gspmd::dynamic::compile(program, m.mesh(), gspmd::dynamic::input<double>({p.n, p.n, p.n}, {"devices", "", ""}));
  const auto v = charges(p.n);
  std::vector<any_array> made;
  outcome o = planned(step);
  const auto run_step = m.prepare(step);
  o.seconds = seconds_of([&] { made = run_step({v.data()}); });
  o.operations = 58.0 * static_cast<double>(cycles * p.n * p.n * p.n);
  o.checks = {{"residual", *made[0].data<double>(), p.residual, 1e-8}};
  return o;
}

}  // namespace npb::mg
