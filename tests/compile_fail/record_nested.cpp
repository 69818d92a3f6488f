// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: record: a member and its input have different forms
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
template <class T>
struct layer {
  T w, b;
};
template <class T>
struct model {
  layer<T> first;
  T scale;
};
constexpr auto program = [](auto n) { return (n.first.w + n.first.b) * n.scale; };
#ifdef FIXED
using step =
    compile<program, pod, record<model, record<layer, input<float, shape<4, 8>>, input<float, shape<8>>>, input<float, shape<>>>>;
#else
using step = compile<program, pod, record<model, input<float, shape<4, 8>>, input<float, shape<>>>>;
#endif

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
