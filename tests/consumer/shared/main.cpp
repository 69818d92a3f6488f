// SPDX-License-Identifier: Apache-2.0
// A program and a shared library that both use gspmd. Both compute, and the program catches the exceptions of the
// library.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include <gspmd/core.hpp>

#include "library.hpp"

using namespace gspmd;

constexpr auto product = [](auto a, auto x) { return einsum<"ij,j->i">(a, x); };
using step =
    compile<product, mesh<axis<"rows", 3>>, input<double, shape<3, 2>, split<"rows", _>>, input<double, shape<2>, split<_>>>;

int main() {
  array<double> a({3, 2}), x({2});
  for (int i = 0; i < 6; ++i) a[i] = i;
  x[0] = 1;
  x[1] = 10;
  double y[3];
  times_in_library(a.data(), x.data(), y);
  const auto ours = run<step>(threads{}, a, x);
  bool is_caught = false;
  try {
    fail_in_library();
  } catch (const error& e) {
    is_caught = std::string_view(e.what()).find("gspmd") == 0;
  }
  std::printf("shared library: %g %g %g, caught: %d\n", y[0], y[1], y[2], is_caught);
  return std::equal(y, y + 3, ours.data()) && y[2] == 54 && is_caught ? 0 : 1;
}
