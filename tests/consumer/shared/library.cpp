// SPDX-License-Identifier: Apache-2.0
// A shared library that uses gspmd inside. The program that links it uses gspmd too.
#include <algorithm>

#include <gspmd/core.hpp>

#include "library.hpp"

using namespace gspmd;

namespace {
constexpr auto product = [](auto a, auto x) { return einsum<"ij,j->i">(a, x); };
using step =
    compile<product, mesh<axis<"rows", 2>>, input<double, shape<3, 2>, split<"rows", _>>, input<double, shape<2>, split<_>>>;
}  // namespace

void times_in_library(const double* a, const double* x, double* y) {
  array<double> whole_a({3, 2}), whole_x({2});
  std::copy_n(a, 6, whole_a.data());
  std::copy_n(x, 2, whole_x.data());
  const auto result = run<step>(threads{}, whole_a, whole_x);
  std::copy_n(result.data(), 3, y);
}

void fail_in_library() {
  array<double> a({3, 2}), too_long({4});
  run<step>(threads{}, a, too_long);
}
