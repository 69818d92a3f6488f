// SPDX-License-Identifier: Apache-2.0
// Gravity between all pairs of N bodies.
#pragma once

#include <gspmd/gspmd.hpp>

#include <array>
#include <cstdint>
#include <tuple>

#include "../common/machine.hpp"

namespace nbody {

using namespace gspmd;
using three = std::array<value, 3>;  // x, y and z: [N] each

inline constexpr double softening = 0.05;  // within this distance, the attraction does not increase

/// For all pairs [N, N]: the position of body j relative to body i, and 1 / distance.
struct pairs {
  three to;
  value nearness, mass_of_other;
};
constexpr pairs pairs_of(const three& x, value mass) {
  const auto n = mass.shape()[0];
  const auto others = [n](value v) { return broadcast_in_dim(v, {n, n}, {1}); };
  pairs p;
  for (std::size_t c = 0; c < 3; ++c) p.to[c] = others(x[c]) - broadcast_in_dim(x[c], {n, n}, {0});
  p.nearness = rsqrt(p.to[0] * p.to[0] + p.to[1] * p.to[1] + p.to[2] * p.to[2] + softening * softening);
  p.mass_of_other = others(mass);
  return p;
}
constexpr three acceleration(const three& x, value mass) {
  const pairs p = pairs_of(x, mass);
  const value pull = p.mass_of_other * p.nearness * p.nearness * p.nearness;
  return {sum(pull * p.to[0], {1}), sum(pull * p.to[1], {1}), sum(pull * p.to[2], {1})};
}
/// Returns the kinetic and the gravitational energy, without the energy of a body with itself.
constexpr value energy(const three& x, const three& v, value mass) {
  const pairs p = pairs_of(x, mass);
  const value motion = 0.5 * sum(mass * (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]));
  return motion - 0.5 * sum(mass * sum(p.mass_of_other * p.nearness, {1})) + sum(mass * mass) * (0.5 / softening);
}

/// Computes `count` steps of leapfrog (kick, drift, kick), and the energy after them.
constexpr auto steps(three x, three v, value mass, int count, double dt) {
  const auto moved = [](const three& a, const three& b, double by) {
    return three{a[0] + by * b[0], a[1] + by * b[1], a[2] + by * b[2]};
  };
  const auto body = [&](value, value x0, value x1, value x2, value v0, value v1, value v2, value a0, value a1, value a2) {
    const three half = moved({v0, v1, v2}, {a0, a1, a2}, dt / 2), there = moved({x0, x1, x2}, half, dt);
    const three a = acceleration(there, mass), next = moved(half, a, dt / 2);
    return std::tuple{there[0], there[1], there[2], next[0], next[1], next[2], a[0], a[1], a[2]};
  };
  const three a = acceleration(x, mass);
  const auto [x0, x1, x2, v0, v1, v2, a0, a1, a2] = fori_loop(count, body, x[0], x[1], x[2], v[0], v[1], v[2], a[0], a[1], a[2]);
  return std::tuple{x0, x1, x2, v0, v1, v2, energy({x0, x1, x2}, {v0, v1, v2}, mass)};
}

/// Simulates two colliding clusters of bodies: draws frames, measures the drift of the energy, and compares the first
/// frame with a loop on one device. Returns 0 if both checks hold.
examples::example simulate;

}  // namespace nbody
