// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gspmd/gspmd.hpp>

#include <utility>

/// The multigrid of NPB's MG, class S: V-cycles for Poisson's equation on a periodic cube. Each stencil of 27 points is
/// written as sums of two neighbours along one dim after the other.
namespace multigrid {

using gspmd::value;

/// The factors of a stencil of 27 points: for the centre, and for the neighbours that differ along one, two and three
/// dims.
struct weights {
  double centre, faces, edges, corners;
};
inline constexpr weights operator_a{-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
inline constexpr weights smoother{-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};
inline constexpr weights mean_of_27{1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16};

constexpr value neighbours(value x, int dim) {
  const auto around = gspmd::boundary::wrap();
  return shift(x, -1, gspmd::along(dim), around) + shift(x, 1, gspmd::along(dim), around);
}
constexpr value stencil_27(value x, weights w) {
  const value i = neighbours(x, 0), j = neighbours(x, 1), ij = neighbours(i, 1);
  value result = w.centre * x;
  if (w.faces != 0) result = result + w.faces * (i + j + neighbours(x, 2));
  if (w.edges != 0) result = result + w.edges * (ij + neighbours(i + j, 2));
  if (w.corners != 0) result = result + w.corners * neighbours(ij, 2);
  return result;
}
constexpr value residual(value u, value v) { return v - stencil_27(u, operator_a); }
constexpr value restricted(value fine) {
  const auto n = fine.shape()[0];
  return slice(stencil_27(fine, mean_of_27), {1, 1, 1}, {n, n, n}, {2, 2, 2});
}
constexpr value prolonged(value coarse) {
  const auto spread = pad(coarse, {1, 1, 1}, {0, 0, 0}, 0, {1, 1, 1});
  value x = spread;
  for (int dim = 0; dim < 3; ++dim) x = x + 0.5 * neighbours(x, dim);
  return x;
}
/// Returns an approximate solution of A u = r.
constexpr value v_cycle(value r) {
  if (r.shape()[0] == 2) return stencil_27(r, smoother);
  const value u = prolonged(v_cycle(restricted(r)));
  const value left = residual(u, r);
  return u + stencil_27(left, smoother);
}

template <int Cycles>
inline constexpr auto solve = [](value v) {
  value u = v_cycle(v);
  for (int k = 1; k < Cycles; ++k) u = u + v_cycle(residual(u, v));
  const value r = residual(u, v);
  return std::pair(u, sum(r * r));
};

}  // namespace multigrid
