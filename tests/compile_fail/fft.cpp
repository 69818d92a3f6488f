// SPDX-License-Identifier: Apache-2.0
// expect: gspmd: an operand has an element type that the operator does not take
// expect: fft at fft.cpp:
// expect: transform is of complex numbers
#include <complex>

#include <gspmd/fft.hpp>
#include <gspmd/gspmd.hpp>

using namespace gspmd;

#ifdef FIXED
using element = std::complex<float>;
#else
using element = float;
#endif

constexpr auto program = [](auto u) { return fft(u, {0, 1}); };
using step = compile<program, mesh<axis<"x", 2>>, input<element, shape<8, 16>, split<"x", _>>>;

int main() {
  array<element> u({8, 16});
  auto y = run<step>(simulated{}, u);  // <- here
  return std::abs(y[0]) > 0;
}
