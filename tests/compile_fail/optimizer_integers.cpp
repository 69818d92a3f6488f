// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operand has an element type that the operator does not take; convert it; see message<>
// expect: adam at
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
constexpr auto program = [](auto w, auto g, auto s) { return optimizer::adam{}.update(w, g, s); };
#ifdef FIXED
using w_in = input<float, shape<8>, split<"data">>;
#else
using w_in = input<int, shape<8>, split<"data">>;
#endif
using step = compile<program, pod, w_in, w_in, optimizer::state_of<optimizer::adam, w_in>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
