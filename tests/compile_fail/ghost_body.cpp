// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a body of a loop or conditional does not fit
// expect: reduce at ghost_body.cpp:
// expect: a loop with several sweeps for each
// expect: from a field is not a field;
#include <gspmd/gspmd.hpp>
#include <gspmd/ops/ghost_zones.hpp>

using namespace gspmd;

constexpr auto decay = [](auto x) {
  const auto body = [](value, value u) {
    const value around = shift(u, -1, along(0)) + shift(u, 1, along(0));
#ifdef FIXED
    return around * 0.5;
#else
    return around / sum(u);
#endif
  };
  return fori_loop(10, ghost<4>(body), x);
};
using step = compile<decay, mesh<axis<"x", 4>>, input<float, shape<64, 32>, split<"x", _>>>;

int main() {
  array<float> x({64, 32});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
