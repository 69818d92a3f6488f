// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: record: give one input for each member of the struct
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
template <class T>
struct layer {
  T w, b;
};
constexpr auto program = [](auto l) { return l.w + l.b; };
#ifdef FIXED
using step = compile<program, pod, record<layer, input<float, shape<4, 8>>, input<float, shape<8>>>>;
#else
using step = compile<program, pod, record<layer, input<float, shape<4, 8>>>>;
#endif

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
