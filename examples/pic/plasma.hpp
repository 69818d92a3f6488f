// SPDX-License-Identifier: Apache-2.0
// Electrons in one dim with immobile ions, by particles in cells: charges on a grid, the field by Fourier transforms,
// and forces from the field.
#pragma once

#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>

#include <cstdint>
#include <numbers>
#include <tuple>

#include "../common/machine.hpp"

namespace pic {

using namespace gspmd;

inline constexpr double length = 2 * std::numbers::pi;  // of the periodic box; times are in 1 / the plasma frequency

/// The two grid points next to each particle at x, and the share of the second point.
struct cells {
  value left, right, share;
};
constexpr cells cells_of(value x, std::int64_t points) {
  const value place = x * (static_cast<double>(points) / length), below = floor(place);
  const value left = cast<std::int64_t>(below) % points;
  return {left, (left + 1) % points, place - below};
}
/// Returns the electric field [points] of all particles [N]: E' = 1 - density.
constexpr value field_of(const cells& at, std::int64_t points) {
  const double each = static_cast<double>(points) / static_cast<double>(at.share.shape()[0]);
  const value density = scatter_add(segment_sum(each * (1.0 - at.share), at.left, points), at.right, each * at.share);
  const value k = iota<double>(density, {points}, 0);
  const value wave = where(k > static_cast<double>(points / 2), k - static_cast<double>(points), k);
  const value by = where(equal(wave, 0.0), zeros_like(wave), -1.0 / wave);  // 1 / (i k) = -i / k; the mean causes no field
  return real(ifft(complex(zeros_like(by), by) * fft(cast<c128>(1.0 - density), {0}), {0}));
}
/// Computes `count` steps of leapfrog. Returns the positions and velocities after them, the velocities half a step
/// earlier, and the last field.
constexpr auto steps(value x, value v, int count, double dt, std::int64_t points) {
  const auto body = [=](value, value at_x, value at_v, value) {
    const cells at = cells_of(at_x, points);
    const value field = field_of(at, points);
    const value force = (1.0 - at.share) * take(field, at.left, 0) + at.share * take(field, at.right, 0);
    const value next_v = at_v - dt * force, next = at_x + dt * next_v;
    return std::tuple{next - length * floor(next / length), next_v, field};
  };
  return fori_loop(count, body, x, v, constant<double>(x, {points}, 0));
}

/// Simulates a cold plasma and measures its frequency. Then simulates two counter-streaming beams and draws frames.
/// Returns 0 if the frequency is the plasma's, momentum is conserved, and the beams have the expected instability.
examples::example simulate;

}  // namespace pic
