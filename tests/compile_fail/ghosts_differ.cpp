// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: step: operators of the program go on differently beyond one end of a dim
#include <gspmd/external/with_ghosts.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

constexpr auto two = [](auto u) { return shift(u, 1, along(0)) + shift(u, 1, along(0), boundary::edge()); };
using step = compile<two, mesh<axis<"x", 1>>, input<double, shape<8, 4>>>;

int main() {
  launch(serial{}, 1, [](auto& comm) {
    double u[10][4] = {}, next[8][4] = {};
    with_ghosts<step, ghosts<1, 0>> s;
#ifdef FIXED
    s(comm, ghosted_view(strided_view(u)), strided_view(next));
#else
    s(comm, exchange_ghosts(strided_view(u)), strided_view(next));  // <- here
#endif
  });
}
// lines: 28
