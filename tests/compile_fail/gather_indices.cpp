// SPDX-License-Identifier: Apache-2.0
// expect: gather at gather_indices.cpp:
// expect: the indices are f32; they are
// expect: cast<std::int64_t>(indices)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using four = mesh<axis<"x", 4>>;

constexpr auto program = [](auto x, auto i) {
#ifdef FIXED
  return take(x, cast<std::int64_t>(i), 0);
#else
  return take(x, i, 0);
#endif
};
using step = compile<program, four, input<float, shape<64, 32>, split<"x", _>>, input<float, shape<8>, split<_>>>;

int main() {
  array<float> x({64, 32});
  array<float> i({8});
  auto y = run<step>(simulated{}, x, i);  // <- here
  return y[0] > 0;
}
