// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: concatenate at concatenate.cpp:
// expect: [64,512]
// expect: [64,256]
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto both = [](auto x, auto y) {
#ifdef FIXED
  return concatenate({x, y}, 1);
#else
  return concatenate({x, y}, 0);
#endif
};
using step = compile<both, four, input<float, shape<64, 512>, split<"x", _>>, input<float, shape<64, 256>, split<"x", _>>>;

int main() {
  array<float> x({64, 512}), y({64, 256});
  auto z = run<step>(simulated{}, x, y);  // <- here
  return z[0] > 0;
}
