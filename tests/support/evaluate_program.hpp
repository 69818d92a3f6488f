// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "support/reference.hpp"
#include "support/region_walk.hpp"

namespace reference {

/// The naive evaluator for programs with loops and conditionals. Every body is computed in each iteration.
class evaluation {
 public:
  std::vector<host_array> values;  // by node; nodes of a body have the values of its last iteration
  double largest = 0;              // the largest magnitude of all floating-point values

  evaluation(const graph& g, const std::vector<host_array>& inputs) : values(g.nodes.size()), graph_(g) {
    for (std::size_t k = 0; k < inputs.size(); ++k) values[static_cast<std::size_t>(g.inputs[k])] = inputs[k];
    region_walk<evaluation>(g, *this, std::numeric_limits<std::int64_t>::max());
  }

 private:
  friend class region_walk<evaluation>;

  host_array& of(int i) { return values[static_cast<std::size_t>(i)]; }
  void set(int i, host_array x) {
    for (const double r : x.reals) largest = std::max(largest, std::fabs(r));
    of(i) = std::move(x);
  }
  void compute(int i) { set(i, evaluate_node(graph_, i, values)); }
  void copy(int to, int from) { set(to, host_array(of(from))); }
  void count(int loop, std::int64_t t) {
    of(loop) = host_array(dtype::s64, {});
    of(loop).ints[0] = t;
  }
  bool holds(int i) { return of(i).ints[0] != 0; }

  const graph& graph_;
};

}  // namespace reference
