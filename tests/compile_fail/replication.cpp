// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operator cannot keep the split of its operand and would gather it whole
// expect: reshape at replication.cpp:
// expect: operand 0 [2,3] is sharded [data,
// expect: result
// expect: [3,2], cannot work on that split
// expect: every device along `data` would
// expect: allow_replication(...)
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;

#ifdef FIXED
constexpr auto program = [](auto x) { return allow_replication(reshape(x, {3, 2})); };
#else
constexpr auto program = [](auto x) { return reshape(x, {3, 2}); };
#endif
using step = compile<program, pod, input<float, shape<2, 3>, split<"data", _>>>;

int main() {
  array<float> x({2, 3});
  auto y = run<step>(simulated{}, x);  // <- here
  return y[0] > 0;
}
