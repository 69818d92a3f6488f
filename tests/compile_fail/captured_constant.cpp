// SPDX-License-Identifier: Apache-2.0
// A closure is declared constexpr and captures a run-time value. The compiler reports its own error, then gspmd says
// how to continue.
// mistakes: 2
// expect: lr
// expect: gspmd: compile: the callable captures a run-time value; make that number an input, `input<float, shape<>>`
#include <cstdlib>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

int main(int, char** argv) {
#ifdef FIXED
  static_cast<void>(argv);
  constexpr float lr = 0.5F;
#else
  float lr = std::strtof(argv[1], nullptr);
#endif
  constexpr auto f = [lr](auto x) { return x * lr; };  // <- here
  using step = compile<f, mesh<axis<"x", 2>>, input<float, shape<8>, split<"x">>>;
  array<float> x({8});
  auto y = run<step>(threads{}, x);  // <- here
  return y[0] != 0;
}
