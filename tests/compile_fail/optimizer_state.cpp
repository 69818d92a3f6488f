// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: optimizer: the state does not belong to this optimizer and these parameters
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
#ifdef FIXED
constexpr auto program = [](auto w, auto s) { return optimizer::momentum{}.update(w, grad(sum(w * w), w), s); };
#else
constexpr auto program = [](auto w, auto s) {
  return optimizer::adam{}.update(w, grad(sum(w * w), w), s);  // <- here
};
#endif
using w_in = input<float, shape<8>, split<"data">>;
using step = compile<program, pod, w_in, optimizer::state_of<optimizer::momentum, w_in>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }
