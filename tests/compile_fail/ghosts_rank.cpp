// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: with_ghosts: ghosts<> has a width, or layers{low, high}, for each dim of its input or output
#include <gspmd/external/with_ghosts.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto twice = [](auto u) { return u * 2; };
using step = compile<twice, mesh<axis<"x", 1>>, input<double, shape<8, 4>>>;

int main() {
#ifdef FIXED
  using ghosted = with_ghosts<step, ghosts<1, 0>>;
#else
  using ghosted = with_ghosts<step, ghosts<1>>;
#endif
  return static_cast<int>(ghosted::traffic.bytes);  // <- here
}
