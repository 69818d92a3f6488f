// SPDX-License-Identifier: Apache-2.0
// Maxwell's equations in a box with metal walls: Yee's grid.
#pragma once

#include <gspmd/dynamic/program.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/staggered.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

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

struct options {
  std::int64_t rows = 240, columns = 320;  // cells
  std::vector<std::int64_t> mesh;          // devices along the dims; empty: as square as possible
  int steps = 40, frames = 10;             // from frame to frame
  std::filesystem::path out;               // none: no pictures
};
inline constexpr const char* options_text =
    "  --cells NxM    (240x320)\n"
    "  --steps N      from frame to frame (40)\n"
    "  --frames N     how many (10)\n"
    "  --out DIR      where frames are written, PGM (yee-frames next to the program)\n";
options parse(int argc, char** argv, bool takes_mesh);

/// Runs a program once on whole arrays: on threads, or over MPI.
using runner =
    std::function<std::vector<gspmd::dynamic::any_array>(const gspmd::dynamic::program&, const std::vector<const void*>&)>;

/// Simulates a pulse in a box: writes the frames, and compares the last frame with a loop on one device. Then simulates
/// a standing wave of known frequency. Returns 0 if both are right.
int simulate(options o, std::int64_t devices, const runner& run);

}  // namespace yee
