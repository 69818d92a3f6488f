// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "extend/new_operator/largest_last.hpp"
#include "extend/new_operator/sum_last.hpp"
#include "gspmd/dynamic.hpp"
#include "gspmd/gspmd.hpp"

namespace new_operator {

using namespace gspmd;

constexpr value sum_last(value x, location at = location::current()) {
  return extend::made(*x.graph(), add_last<sum_last_op>(*x.graph(), x.id(), at), x.type(), x.shape());
}
constexpr value largest_last(value x, location at = location::current()) {
  return extend::made(*x.graph(), add_last<largest_last_op>(*x.graph(), x.id(), at), x.type(), x.shape());
}

/// Rows are split and summed, and the summed dim is split too.
inline constexpr auto program = [](auto x, auto w) {
  auto y = sum_last(x * w), z = largest_last(x - 9.0);
  return std::tuple{y, grad(sum(y * y), w), z, grad(sum(z * z), x)};
};
using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
using step = compile<program, pod, input<double, shape<5, 7>, split<"x", "y">>, input<double, shape<5, 7>>>;

// Completed, partitioned and counted: a sum and maxima over `y`, and 3 x 4 elements of the largest shard in every
// operator on shards.
static_assert(step::collectives == collectives{all_reduce<"y">, all_reduce<"y">});
static_assert(step::flops_per_device > 0);

struct data {
  std::vector<double> x = std::vector<double>(35), w = x, sums = std::vector<double>(5), gradient = x;
  std::vector<double> largest = std::vector<double>(5, -99.0), by_largest = x;
  data() {
    for (std::size_t i = 0; i < 35; ++i) {
      x[i] = static_cast<double>(i % 9) - 4;
      w[i] = static_cast<double>(i % 5) * 0.5;
      sums[i / 7] += x[i] * w[i];
      largest[i / 7] = std::max(largest[i / 7], x[i] - 9);
    }
    for (std::size_t i = 0; i < 35; ++i) {
      gradient[i] = 2 * sums[i / 7] * x[i];
      by_largest[i] = x[i] - 9 == largest[i / 7] ? 2 * largest[i / 7] : 0;
    }
  }
};

/// Returns the number of wrong elements on this backend, compiled and at run time.
template <class Backend>
int wrong_elements(const Backend& backend) {
  const data d;
  int wrong = 0;
  const auto compare = [&wrong](const double* got, const std::vector<double>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) wrong += got[i] != want[i] ? 1 : 0;
  };
  const auto [sums, gradient, largest, by_largest] = run<step>(backend, d.x, d.w);
  compare(sums.data(), d.sums);
  compare(gradient.data(), d.gradient);
  compare(largest.data(), d.largest);
  compare(by_largest.data(), d.by_largest);
  const auto planned = dynamic::compile(program, dynamic::mesh({{"x", 2}, {"y", 2}}), dynamic::input<double>({5, 7}, {"x", "y"}),
                                        dynamic::input<double>({5, 7}));
  const auto at_run_time = planned.run(backend, d.x, d.w);
  compare(at_run_time[0].template data<double>(), d.sums);
  compare(at_run_time[1].template data<double>(), d.gradient);
  compare(at_run_time[2].template data<double>(), d.largest);
  compare(at_run_time[3].template data<double>(), d.by_largest);
  return wrong;
}

}  // namespace new_operator
