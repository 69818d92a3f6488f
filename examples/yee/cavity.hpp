// SPDX-License-Identifier: Apache-2.0
// Maxwell's equations in a box with metal walls: Yee's grid.
#pragma once

#include <gspmd/gspmd.hpp>
#include <gspmd/staggered.hpp>

#include <cstdint>
#include <tuple>

#include "../common/machine.hpp"

namespace yee {

using namespace gspmd;

/// The fields of n x m cells. The side of a cell and the speed of light are 1. ez is at the corners [n+1, m+1]; hx and
/// hy are at the middle of the sides [n+1, m] and [n, m+1]. Metal walls: ez is 0 at the border.
using fields = std::tuple<value, value, value>;

inline constexpr double courant = 0.5;  // the time step; stable below 1 / sqrt(2)

/// Computes one step of Yee's scheme, as in textbooks. Adds `source` to ez.
constexpr fields step(value ez, value hx, value hy, value source) {
  const auto n = hy.shape()[0], m = hx.shape()[1];
  const auto part = [](value x, std::int64_t i, std::int64_t i_end, std::int64_t j, std::int64_t j_end) {
    return slice(x, {i, j}, {i_end, j_end});
  };
  hx = hx - courant * (part(ez, 0, n + 1, 1, m + 1) - part(ez, 0, n + 1, 0, m));
  hy = hy + courant * (part(ez, 1, n + 1, 0, m + 1) - part(ez, 0, n, 0, m + 1));
  const value curl = part(hy, 1, n, 1, m) - part(hy, 0, n - 1, 1, m) - (part(hx, 1, n, 1, m) - part(hx, 1, n, 0, m - 1));
  ez = ez + pad(courant * curl, {1, 1}, {1, 1}) + source;
  return {ez, hx, hy};
}

/// Computes `count` steps with an antenna at cell (at_i, at_j) that radiates a pulse around step `middle`. `first` is
/// the number of the first step.
constexpr fields steps(value ez, value hx, value hy, value first, int count, std::int64_t at_i, std::int64_t at_j,
                       double middle) {
  return staggered(
      [&](value e0, value hx0, value hy0) {
        return fori_loop(
            count,
            [&](value i, value e, value h_x, value h_y) {
              const value t = cast<double>(i + first) - middle;
              const value pulse = exp(t * t * (-4.0 / (middle * middle)));
              const auto rows = e.shape()[0], columns = e.shape()[1];
              const value is_there = bitwise_and(equal(iota<std::int64_t>(e, {rows, columns}, 0), at_i),
                                                 equal(iota<std::int64_t>(e, {rows, columns}, 1), at_j));
              return step(e, h_x, h_y, where(is_there, pulse, 0.0));
            },
            e0, hx0, hy0);
      },
      ez, hx, hy);
}

/// Simulates a pulse in a box: draws the frames, and compares the last frame with a loop on one device. Then simulates
/// a standing wave of known frequency. Returns 0 if both are right.
examples::example simulate;

}  // namespace yee
