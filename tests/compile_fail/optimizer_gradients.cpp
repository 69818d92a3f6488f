// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: optimizer: the gradients are a group of another form than the parameters; give grad(loss, parameters)
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
template <class T>
struct layer {
  T w, b;
};
#ifdef FIXED
constexpr auto program = [](auto l, auto s) { return optimizer::adam{}.update(l, grad(sum(l.w * l.b), l), s); };
#else
constexpr auto program = [](auto l, auto s) {
  return optimizer::adam{}.update(l, grad(sum(l.w * l.b), std::tuple(l.w, l.b)), s);  // <- here
};
#endif
using l_in = record<layer, input<float, shape<8>, split<"data">>, input<float, shape<8>>>;
using step = compile<program, pod, l_in, optimizer::state_of<optimizer::adam, l_in>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }
