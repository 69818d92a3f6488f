// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: array_of: the inputs have different forms
#include <gspmd/gspmd.hpp>
#include <gspmd/program/input_arrays.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
template <class T>
struct layer {
  T w, b;
};
using layer_in = record<layer, input<float, shape<8>>, input<float, shape<8>>>;
constexpr auto program = [](auto l) { return transform_leaves([](value x) { return 2.0 * x; }, l); };
#ifdef FIXED
using step = compile<program, pod, repeat<2, layer_in>>;
#else
using step = compile<program, pod, array_of<layer_in, input<float, shape<8>>>>;
#endif

int main() { return step::traffic.bytes > 0 ? 1 : 0; }  // <- here
