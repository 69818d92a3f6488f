// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: with_ghosts: an input among ghost layers is read by elementwise operators
// expect: through no more than one shift along a dim
// expect: shifted again
#include <gspmd/external/with_ghosts.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr auto forward = [](auto u) { return shift(u, 2, along(0)) - u; };
#else
constexpr auto forward = [](auto u) { return shift(shift(u, 1, along(0)), 1, along(0)) - u; };
#endif
using step = compile<forward, mesh<axis<"x", 2>>, input<double, shape<8, 4>, split<"x", _>>>;

int main() {
  using ghosted = with_ghosts<step, ghosts<2, 0>>;
  return static_cast<int>(ghosted::traffic.bytes);  // <- here
}
