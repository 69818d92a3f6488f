// SPDX-License-Identifier: Apache-2.0
// A compiled program captures a run-time value: by value, by reference, or by reference in a lambda inside of the
// template argument. A lambda inside of the template argument that captures by value is no constant, so the compiler
// reports its own error (docs/reference/errors.md). For a `constexpr` closure, the compiler's own error precedes this
// one (captured_constant.cpp).
// mistakes: 3
// expect: gspmd: compile: the callable captures a run-time value; make that number an input, `input<float, shape<>>`
// expect: or give the callable to dynamic::compile
#include <cstdlib>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

using pod = mesh<axis<"data", 2>>;
using rows = input<float, shape<64>, split<"data">>;

int main(int, char** argv) {
  array<float> x({64});
#ifdef FIXED
  const auto scaled = [](auto a, auto rate) { return a * rate; };
  using step = compile<scaled, pod, rows, input<float, shape<>>>;
  array<float> rate{{}};
  rate[0] = std::strtof(argv[1], nullptr);
  return run<step>(simulated{}, x, rate)[0] > 0;
#else
  const float rate = std::strtof(argv[1], nullptr);
  auto scaled = [rate](auto a) { return a * rate; };
  const auto scaled_by_reference = [&](auto a) { return a * rate; };
  using step = compile<scaled, pod, rows>;
  using step_by_reference = compile<scaled_by_reference, pod, rows>;
  using step_in_place = compile<[&](auto a) { return a * rate; }, pod, rows>;
  auto y = run<step>(simulated{}, x);               // <- here
  auto z = run<step_by_reference>(simulated{}, x);  // <- here
  auto u = run<step_in_place>(simulated{}, x);      // <- here
  return y[0] + u[0] > z[0];
#endif
}
