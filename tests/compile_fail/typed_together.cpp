// SPDX-License-Identifier: Apache-2.0
// A refused operator that must reshard both arguments, each along two axes.
// expect: gspmd: a program with types has only the communication that you write
// expect: reshard<split<_>>(operand 0) and
// expect: reshard<split<_>>(operand 1): 48
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

using pod = mesh<axis<"x", 2>, axis<"y", 2>>;
using keys = tensor<float, shape<8>, place<pod, split<"x,y">>>;
constexpr auto sorted = [](auto a, auto b) {
#ifdef FIXED
  return sort_together({reshard<split<_>>(a), reshard<split<_>>(b)}, 1, along(0))[1];
#else
  return sort_together({a, b}, 1, along(0))[1];
#endif
};
using step = compile<sorted, pod, keys, keys>;

int main() {
  array<float> a({8}), b({8});
  return run<step>(simulated{}, a, b)[0] > 0;  // <- here
}
