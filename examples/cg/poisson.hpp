// SPDX-License-Identifier: Apache-2.0
// Poisson's equation on a domain of any shape, as a sparse matrix.
#pragma once

#include <gspmd/error.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "../common/machine.hpp"

namespace cg {

/// -laplace u = f on the points of a square of `side` x `side` that are in the domain, with u = 0 outside. The points
/// are numbered line by line. A row of the matrix, in compressed rows, has the numbers of the point's neighbours.
struct poisson {
  std::int64_t side = 0, points = 0;
  std::vector<std::int64_t> number;  // of each point of the square; -1 outside
  std::vector<std::int64_t> row_start{0};
  std::vector<std::int32_t> column;
  std::vector<double> values;

  explicit poisson(std::int64_t of_side) : side(of_side), number(static_cast<std::size_t>(side * side), -1) {
    for (std::int64_t i = 0; i < side; ++i)
      for (std::int64_t j = 0; j < side; ++j)
        if (is_inside(i, j)) number[static_cast<std::size_t>(i * side + j)] = points++;
    for (std::int64_t i = 0; i < side; ++i)
      for (std::int64_t j = 0; j < side; ++j) {
        if (at(i, j) < 0) continue;
        add(at(i, j), 4);
        add(at(i - 1, j), -1);
        add(at(i + 1, j), -1);
        add(at(i, j - 1), -1);
        add(at(i, j + 1), -1);
        row_start.push_back(static_cast<std::int64_t>(column.size()));
      }
  }
  /// Returns the number of a point, or -1 if the point is not in the domain.
  [[nodiscard]] std::int64_t at(std::int64_t i, std::int64_t j) const {
    return i < 0 || j < 0 || i >= side || j >= side ? -1 : number[static_cast<std::size_t>(i * side + j)];
  }

 private:
  /// Returns true inside of a gear of seven teeth with a hole.
  [[nodiscard]] bool is_inside(std::int64_t i, std::int64_t j) const {
    const auto place = [&](std::int64_t k) { return (static_cast<double>(k) + 0.5) / static_cast<double>(side) * 2 - 1; };
    const double y = place(i), x = place(j), radius = std::hypot(x, y);
    return radius > 0.25 && radius < 0.8 + 0.15 * std::cos(7 * std::atan2(y, x));
  }
  void add(std::int64_t neighbour, double v) {
    if (neighbour < 0) return;
    column.push_back(static_cast<std::int32_t>(neighbour));
    values.push_back(v);
  }
};

/// Throws gspmd::error if |r|^2 is not finite: a comparison with NaN stops the loop, so the number of iterations would
/// not increase.
inline void check_residual(double rr, int iterations) {
  if (!(rr < std::numeric_limits<double>::infinity()))
    throw gspmd::error("conjugate gradients: |r|^2 is " + std::to_string(rr) + " after " + std::to_string(iterations) +
                       " iterations; give a matrix that is positive definite and finite numbers");
}
/// Solves the problem by conjugate gradients, draws the solution and checks it. Returns 0 if the solution is right.
examples::example solve;

}  // namespace cg
