// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: attention at attention.cpp:
// expect: 2 of q, k and v, [8,16,32],
// expect: [8,20,64] and [8,20,64]: rows of q
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/attention.hpp>

using namespace gspmd;

#ifdef FIXED
constexpr std::int64_t depth = 64;
#else
constexpr std::int64_t depth = 32;
#endif

constexpr auto program = [](auto q, auto k, auto v) { return attention(q, k, v); };
using step = compile<program, mesh<axis<"x", 2>>, input<float, shape<8, 16, depth>>, input<float, shape<8, 20, 64>>,
                     input<float, shape<8, 20, 64>>>;

int main() {
  array<float> q({8, 16, depth}), k({8, 20, 64}), v({8, 20, 64});
  auto y = run<step>(simulated{}, q, k, v);  // <- here
  return y[0] > 0;
}
