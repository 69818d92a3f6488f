// SPDX-License-Identifier: Apache-2.0
// The heat equation for one device: u' = the sum of the second differences of u.
#pragma once

#include <gspmd/gspmd.hpp>

namespace heat {

using namespace gspmd;

/// One explicit step of a field of two or three dims.
constexpr value step(value u, boundary::sides around, double rate) {
  if (u.rank() == 3)
    return stencil<1, 1, 1>(
        [rate](auto t) {
          const value near = t(-1, 0, 0) + t(1, 0, 0) + t(0, -1, 0) + t(0, 1, 0) + t(0, 0, -1) + t(0, 0, 1);
          return t(0, 0, 0) + rate * (near - 6.0 * t(0, 0, 0));
        },
        stencil_field(u, {around}));
  return stencil<1, 1>(
      [rate](auto t) {
        const value near = t(-1, 0) + t(1, 0) + t(0, -1) + t(0, 1);
        return t(0, 0) + rate * (near - 4.0 * t(0, 0));
      },
      stencil_field(u, {around}));
}

constexpr double rate = 0.125;  // below 1/6 the steps are stable in three dims

constexpr value steps(value u, boundary::sides around, int count) {
  return fori_loop(
      count, [around](value, value t) { return step(t, around, rate); }, u);
}

// The compiled program: 240 x 320 points on 2 x 2 devices, no flow across the boundary, 50 steps between frames.
constexpr int compiled_steps = 50;
constexpr auto compiled = [](value u) { return steps(u, boundary::edge(), compiled_steps); };
using compiled_mesh = mesh<axis<"x", 2>, axis<"y", 2>>;
using compiled_frame = compile<compiled, compiled_mesh, input<double, shape<240, 320>, split<"x", "y">>>;

}  // namespace heat
