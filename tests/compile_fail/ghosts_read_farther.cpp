// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: with_ghosts: an input among ghost layers is read by elementwise operators
// expect: input 0 has ghost layers of
// expect: reads it 2 further
#include <gspmd/external/with_ghosts.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto forward = [](auto u) { return shift(u, 2, along(0)) - u; };
using step = compile<forward, mesh<axis<"x", 2>>, input<double, shape<8, 4>, split<"x", _>>>;

int main() {
#ifdef FIXED
  using ghosted = with_ghosts<step, ghosts<2, 0>>;
#else
  using ghosted = with_ghosts<step, ghosts<1, 0>>;
#endif
  return static_cast<int>(ghosted::traffic.bytes);  // <- here
}
