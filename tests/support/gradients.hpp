// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include "support/traced.hpp"

/// Gradients, compared with finite differences of the naive evaluator.
namespace reference {

/// Returns sum(y * w) with fixed weights of both signs, so that all elements of y have different weights.
inline value weighted_sum(traced& program, value y) {
  const auto shape = y.shape();
  const value w = program.input(reals({shape.begin(), shape.end()}, -1.3, 1.7, 5));
  return gspmd::sum((y.type() == dtype::f64 ? y : gspmd::cast<double>(y)) * w);
}

/// Returns the gradients with respect to up to four values, through the public function.
inline std::vector<value> gradients_of(value loss, const std::vector<value>& by) {
  std::array<value, 4> list{};
  std::copy(by.begin(), by.end(), list.begin());
  const auto result = gspmd::grad(loss, list);
  return {result.begin(), result.begin() + static_cast<std::ptrdiff_t>(by.size())};
}

/// Compares finite differences of a loss with its gradient by one input.
struct difference_check {
  int checked = 0;
  int skipped = 0;  // elements at which the loss is too nonlinear for a finite difference
  std::string wrong;

  /// Checks `most` elements of input `k`. `gradient` is the result of the program.
  void look(traced& program, value loss, std::size_t k, const host_array& gradient, double step, int most) {
    const auto at_loss = [&](std::size_t e, double x) {
      double& element = program.inputs[k].reals[e];
      const double before = std::exchange(element, x);
      const double y = program.evaluate(loss).reals[0];
      element = before;
      return y;
    };
    const auto& x = program.inputs[k];
    if (gradient.type != x.type || gradient.shape != x.shape) wrong = "a gradient of another type or shape than its input";
    const auto stride = std::max<std::size_t>(1, x.size() / static_cast<std::size_t>(most));
    for (std::size_t e = 0; e < x.size() && wrong.empty(); e += stride) {
      const double here = x.reals[e];
      const auto slope = [&](double h) { return (at_loss(e, here + h) - at_loss(e, here - h)) / (2 * h); };
      const double coarse = slope(step);
      const double fine = slope(step / 2);
      const double want = (4 * fine - coarse) / 3;
      const double got = gradient.reals[e];
      if (!(std::fabs(fine - coarse) <= 1e-3 * (1 + std::fabs(want)))) {
        ++skipped;
        continue;
      }
      ++checked;
      if (!(std::fabs(got - want) <= 1e-6 * (1 + std::fabs(want)) + std::fabs(fine - coarse)))
        wrong = "input " + std::to_string(k) + ", element " + std::to_string(e) + ": the gradient is " + number_text(got) +
                " and the differences say " + number_text(want);
    }
  }
};

}  // namespace reference
