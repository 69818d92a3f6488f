// SPDX-License-Identifier: Apache-2.0
// The package is usable: a sum over a dimension that two devices share is planned while compiling, and is right.
#include <gspmd/core.hpp>

constexpr auto total = [](auto x) { return sum(x); };
using step = gspmd::compile<total, gspmd::mesh<gspmd::axis<"x", 2>>, gspmd::input<float, gspmd::shape<8>, gspmd::split<"x">>>;
static_assert(step::traffic.collectives == 1);

int main() {
  gspmd::array<float> x({8});
  x.fill(1.5F);
  return gspmd::run<step>(gspmd::simulated{}, x)[0] == 12.0F ? 0 : 1;
}
