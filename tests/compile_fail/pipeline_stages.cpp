// SPDX-License-Identifier: Apache-2.0
// expect: pipeline at pipeline_stages.cpp:
// expect: counts the 4 stages
#include <gspmd/gspmd.hpp>
#include <gspmd/nn/pipeline.hpp>

using namespace gspmd;

constexpr auto layer = [](value w, value x) { return tanh(einsum<"bd,df->bf">(x, w)); };
constexpr auto program = [](auto w, auto x) {
#ifdef FIXED
  return pipeline<"stage">(layer, gpipe{2, 4})(w, x);
#else
  return pipeline<"stage">(layer, gpipe{4, 4})(w, x);
#endif
};
using step = compile<program, mesh<axis<"stage", 2>>, input<float, shape<2, 3, 3>>, input<float, shape<4, 2, 3>>>;

int main() {
  array<float> w({2, 3, 3}), x({4, 2, 3});
  auto y = run<step>(simulated{}, w, x);  // <- here
  return y[0] > 0;
}
