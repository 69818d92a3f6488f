// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a body of a loop or conditional does not fit
// expect: fori_loop at
// expect: ghost_in_region.cpp:
// expect: region makes one sweep on each
// expect: exchange, and no ghost zones; write
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/manual.hpp>
#include <gspmd/ops/ghost_zones.hpp>

using namespace gspmd;

constexpr auto decay = [](auto x) {
  const auto body = [](value, value u) { return 0.25 * (shift(u, -1, along(0)) + shift(u, 1, along(0))); };
  const auto by_hand = [body](value u) {
#ifdef FIXED
    return fori_loop(10, body, u);
#else
    return fori_loop(10, ghost<4>(body), u);
#endif
  };
  return manual<"y">(by_hand, takes<split<_, "y">>{}, gives<split<_, "y">>{})(x);
};
using step = compile<decay, mesh<axis<"x", 2>, axis<"y", 2>>, input<float, shape<64, 32>, split<"x", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
