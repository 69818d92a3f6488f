// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: extents that must be equal differ
// expect: lamb at
// expect: gradient 0 is f32
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/optimizer.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
constexpr auto program = [](auto w, auto g, auto s) { return optimizer::lamb{}.update(w, g, s); };
using w_in = input<float, shape<8>, split<"data">>;
#ifdef FIXED
using g_in = input<float, shape<8>>;
#else
using g_in = input<float, shape<6>>;
#endif
using step = compile<program, pod, w_in, g_in, optimizer::state_of<optimizer::lamb, w_in>>;

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
