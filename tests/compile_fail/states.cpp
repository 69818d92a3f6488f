// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: a program with types has only the communication that you write
// expect: add at states.cpp:26: operand 1 is
// expect: invariant over `model`, operand 0
// expect: is sharded (dim 1): the gradient of
// expect: operand 1 would miss a sum over
// expect: `model`; write
// expect: reshard<split<`data`,
// expect: `model`>>(operand 1): 0 bytes
// expect: forward, 48 bytes (all_gather)
// expect: backward; or
#include <gspmd/gspmd.hpp>
#include <gspmd/modes/tensor.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>, axis<"model", 2>>;
using activations = tensor<float, shape<6, 5>, place<pod, split<"data", _>, replica<"model">>>;
using weights = tensor<float, shape<5, 7>, place<pod, split<_, "model">, replica<"data">>>;
using biases = tensor<float, shape<6, 7>, place<pod, split<"data", _>>>;

constexpr auto layer = [](auto x, auto w, auto b) {
#ifdef FIXED
  b = reshard<split<"data", "model">>(b);
#endif
  return einsum<"bd,df->bf">(x, w) + b;
};
using step = compile<layer, pod, activations, weights, biases>;
#ifdef FIXED
static_assert(step::collectives == collectives{});
static_assert(std::is_same_v<typed_result<layer, pod, activations, weights, biases>,
                             tensor<float, shape<6, 7>, place<pod, split<"data", "model">>>>);
#endif

int main() {
  array<float> a({6, 5}), m({5, 7}), b({6, 7});
  auto y = run<step>(simulated{}, a, m, b);  // <- here
  return y[0] > 0;
}
